package shardsvc

import "github.com/headrace/headrace/shardsvc/cut"

// CutCall is one question of a trainer about cuts. Exactly one of its pointers is set. It
// takes effect after everything else in its message. One ReplyCut answers it. If it is
// asked again with the same ID, it is answered again.
type CutCall struct {
	Worker  uint32
	ID      uint64
	Ask     *CutAsk
	Bind    *CutBind
	Drop    *CutDrop
	Restore *RestoreCall
	Pause   *CutPause
}

// CutAsk freezes the cut at Step. Its answer waits until the cut is complete, or
// Deadline has passed.
type CutAsk struct {
	Cut      uint64 // drawn by the asker; not 0
	Step     int64  // ignored for shared
	Carried  bool   // a framework owns the file: kept without a manifest
	Path     string // where the manifest will be; empty with Carried
	Deadline Time   // from now; 0: 60 s
	Exact    bool   // shared: a CutPause of Cut was answered OK; refused if the pause ended early
	After    uint64 // as in RestoreCall
	Memory   bool   // replicated, private: the checkpoint lies in the nodes' memory; Path is where it may be written
}

// CutPause (shared) pauses the yields of all trainers until Cut is asked for with Exact,
// or is dropped, or Deadline has passed. It is answered when every living worker has said
// that it yields nothing.
type CutPause struct {
	Cut      uint64
	Deadline Time // from now; 0: 60 s
}

// YieldsPaused says that the worker yields nothing, and that the acks of all its yielded
// records came before. Untracked is a dataset that it reads without steps, so that it
// cannot know this.
type YieldsPaused struct {
	Worker    uint32
	Cut       uint64
	Untracked DatasetID
}

// CutBind: a valid manifest that carries the cut is at Path.
type CutBind struct {
	Cut  uint64
	Path string
}

// CutDrop forgets a kept cut.
type CutDrop struct {
	Cut    uint64
	Reason string
}

// RestoreMode has the numbers of the wire.
type RestoreMode uint8

const (
	RestoreNewest RestoreMode = iota
	RestoreExact
	RestoreStart
)

// RestoreCall goes back to a cut, or to the start. Cut is the cut as its manifest has it;
// nil: none was found. If this core keeps the cut, only its ID counts.
type RestoreCall struct {
	Mode   RestoreMode
	Cut    *cut.Cut
	Path   string   // of its manifest; empty: carried
	Failed []uint64 // cuts whose files did not verify there
	// After is the highest Order of the checkpoints that lie there. A core that has lost
	// its state does not know of them; the cuts that it freezes from now on get higher
	// orders.
	After uint64
	// Memory: Cut comes from the nodes' memory, and there is no manifest at Path.
	Memory bool
	// Tells: Readable are all cuts whose checkpoint this process can read from memory. A
	// replicated group goes back to one of them only if every rank holds it.
	Tells    bool
	Readable []uint64
	// Waited is how long ago the caller called for this restore first, if it was answered
	// CutAgain.
	Waited Time
}

// Resume has the numbers of the wire: what a trainer said at init().
type Resume uint8

const (
	// ResumeDefault: BOUND if a cut is kept, else START; shared: ACKED.
	ResumeDefault Resume = iota
	ResumeBound          // if any record is in a model, the process gets none before it restored
	ResumeAcked          // acked records stay acked: for shared, and for jobs without cuts
	ResumeStart          // all is pending again
)

func (r Resume) String() string { return [...]string{"default", "bound", "acked", "start"}[r] }

// ResolveCut answers ReportResolveCut: whether a valid manifest of the cut is at its path.
// Found false means that it is certainly not there. If the shell cannot see the storage,
// it does not answer, and the core voids the cut at its deadline.
type ResolveCut struct {
	Cut   uint64
	Found bool
}

// Rewind goes back to a cut without a trainer; Cut nil: to the start, for private with all
// ranks. Living trainers of the model are fenced. It is answered by ReportRewound, or
// Rejected with the reason.
type Rewind struct {
	Cut   *cut.Cut
	Path  string // of its manifest
	After uint64 // as in RestoreCall
}

// BindCut and DropCut are CutBind and CutDrop of a tool. They are Rejected with
// the reason, or reported.
type BindCut struct {
	Cut  uint64
	Path string
}

type DropCut struct {
	Cut    uint64
	Reason string
}

func (*ResolveCut) event() {}
func (*Rewind) event()     {}
func (*BindCut) event()    {}
func (*DropCut) event()    {}
