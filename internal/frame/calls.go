package frame

import (
	"encoding/json"
	"fmt"
)

// Kinds of CALL.
const (
	CallAsk     = "ask"
	CallBind    = "bind"
	CallDrop    = "drop"
	CallRestore = "restore"
	CallPause   = "pause"

	// CallPersist is for the agent itself: write the checkpoint of Cut, in the slot at
	// Path, to storage. If that is a part of a sharded checkpoint in a bucket, only the part.
	CallPersist = "persist"
	// CallStored is for the agent itself: it does with checkpoints in a bucket what Mode says.
	CallStored = "stored"
	// CallPeers is for the agent itself: it does with checkpoints in the memory of other nodes
	// what Mode says.
	CallPeers = "peers"
)

// PersistGather is a mode of CallPersist: write the manifest of the sharded checkpoint in a
// bucket that the slot holds a part of. AnswerAgain: parts are missing, and Reason names them.
const PersistGather = "gather"

// Modes of CallPeers. Into is the folder of the trainer's slots.
const (
	// PeersFind looks for checkpoints. Readable are those that the trainer has itself; with
	// Any the copy of any rank will do. ANSWER's body has what was found.
	PeersFind = "find"
	// PeersBring copies the checkpoint of Cut, which rank From wrote, from agent Path into
	// this node's memory. ANSWER's path is where it lies.
	PeersBring = "bring"
	// PeersForget removes the copies of this rank: its last checkpoint is on storage.
	PeersForget = "forget"
)

// Modes of CallStored.
const (
	StoredID    = "id"    // of the folder of checkpoints at Path: ANSWER's cut
	StoredList  = "list"  // copy its manifests into the local folder Into
	StoredFetch = "fetch" // copy the files that rank From needs of the checkpoint with the manifest Path into the folder Into
	// StoredBegin marks that checkpoint as being removed, before its cut is dropped. ANSWER is
	// refused if it is pinned.
	StoredBegin  = "begin"
	StoredCancel = "cancel" // take that mark away
	StoredRemove = "remove" // remove that checkpoint
	// StoredSweep removes what killed saves have left, in which nothing has changed for
	// DeadlineMS before the manifest at Path was written.
	StoredSweep = "sweep"
)

// Call asks something about cuts. Its fields are those of CutCall in
// session.proto; Call decides which of them are used.
type Call struct {
	ID         uint64          `json:"id"` // grows in the process, from 1
	Call       string          `json:"call"`
	Cut        CutID           `json:"cut,omitempty"`
	Step       int64           `json:"step,omitempty"`
	Carried    bool            `json:"carried,omitempty"`
	Path       string          `json:"path,omitempty"`
	DeadlineMS uint32          `json:"deadline_ms,omitempty"`
	Exact      bool            `json:"exact,omitempty"`
	Reason     string          `json:"reason,omitempty"`
	Mode       string          `json:"mode,omitempty"` // of restore: newest | exact | start; of stored: StoredID etc.; of peers: PeersFind etc.; of persist: "" or PersistGather
	Body       json.RawMessage `json:"body,omitempty"` // the cut, an object
	Failed     []CutID         `json:"failed,omitempty"`
	After      uint64          `json:"after,omitempty"`
	Memory     bool            `json:"memory,omitempty"` // the checkpoint lies in this node's memory
	Tells      bool            `json:"tells,omitempty"`  // restore: readable is all that this process can read from memory
	Readable   []CutID         `json:"readable,omitempty"`
	Into       string          `json:"into,omitempty"`
	Any        bool            `json:"any,omitempty"`
	From       uint32          `json:"from,omitempty"`
	WaitedMS   uint64          `json:"waited_ms,omitempty"` // restore: since its first call, after an answer "again"
}

// Codes of ANSWER.
const (
	AnswerOK      = "ok"
	AnswerRefused = "refused"
	AnswerFenced  = "fenced"
	AnswerTry     = "try"
	AnswerTimeout = "timeout"
	AnswerAgain   = "again" // it cannot be decided or written yet; call again
)

// Answer answers the CALL that has the same id.
type Answer struct {
	ID     uint64 `json:"id"`
	Code   string `json:"code"`
	Reason string `json:"reason"`
	// Refusal is why a restore was refused, in a word; empty: for any other reason.
	Refusal string          `json:"refusal,omitempty"`
	Cut     CutID           `json:"cut"`
	Step    int64           `json:"step"`
	Path    string          `json:"path"`
	Body    json.RawMessage `json:"body,omitempty"`
	Again   int64           `json:"again"` // units that were acked and are pending again
	Epoch   uint32          `json:"epoch"`

	AgainRecords *Again `json:"again_records,omitempty"`
}

// CutID names a cut. It is a random number that the asking process has drawn, 16 hex
// digits on the wire; 0 names no cut.
type CutID uint64

func (i CutID) String() string               { return fmt.Sprintf("%016x", uint64(i)) }
func (i CutID) MarshalText() ([]byte, error) { return []byte(i.String()), nil }

func (i *CutID) UnmarshalText(b []byte) error {
	v, err := hex64("cut", b)
	*i = CutID(v)
	return err
}
