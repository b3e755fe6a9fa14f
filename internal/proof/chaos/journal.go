package chaos

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/headrace/headrace/shardsvc/cut"
)

// A journal is a sequence of entries, little-endian:
//
//	"CHJ1"  u16 kind  u16 stream  u32 keys  u32 0  i64 number  i64 aux  i64 time (monotonic, ns)  keys * i64
//
// A key is id | pass << 40 | dataset << 56. A process writes an entry, in one write(2), before it goes
// on. SIGKILL can cut that write off at the end of a page. So the file of a killed process may end
// with a part of an entry, which is ignored: the process had not gone on.
const (
	kindStart      = iota + 1 // the process began: number is its pid
	kindYielded               // the stream gave batch number, with these keys
	kindApplied               // batch number is in the model; aux: which life of the shared model's server has it
	kindStepped               // step() of batch number has returned; aux: how many batches are known to be durable
	kindEnded                 // the stream saw the end of data
	kindClosed                // the stream was closed before that
	kindFenced                // the process was told that it is fenced off
	kindDone                  // the process shut down well: all steps are durable
	kindBad                   // a record came with values of another record
	kindTrapped               // trap point `number` is reached; the trap kills aux 0: the process itself, 1: the master, 2: its agent
	kindSaved                 // the manifest of step number and cut aux was renamed; its key: when the state was copied; stream: life of the server
	kindBound                 // the checkpoint was bound; the same fields
	kindRestored              // the process went back to step number and cut aux; 0: to the start. stream: life of the shared model's server. With memory, keys are the order of the cut, and 1 if it came from memory, 2 if from another node's
	kindFailedSave            // a save of step number failed
	kindHashed                // bit_exact: the batch of step number and virtual rank stream has hash aux
	kindHeld                  // a checkpoint of step number and cut aux is complete in memory; its key: the order of the cut
)

// trapPoints names the points of traps by number. POINTS in trainer/traps.py is the same list.
var trapPoints = []string{"yield", "apply", "step", "acked", "captured", "frozen", "files", "part", "manifest", "renamed", "bound", "restored", "paused", "copying", "sealed", "persist"}

const entrySize = 40

type key int64

func (k key) id() int      { return int(k & (1<<40 - 1)) }
func (k key) pass() int    { return int(k >> 40 & (1<<16 - 1)) }
func (k key) dataset() int { return int(k >> 56) }

func (k key) String() string {
	return fmt.Sprintf("record %d of pass %d of dataset %d", k.id(), k.pass(), k.dataset())
}

// batch is what a trainer did with one batch.
type batch struct {
	stream, number         int
	keys                   []key
	yielded                int64 // time
	applied, stepped       int64 // times; 0: it did not happen
	durableWhenLastStepped bool  // when the last entry was written, the stream knew that this step was durable
	server                 int   // life of the shared model's server that has it
}

// life is one process of a rank, as its journal tells it.
type life struct {
	rank, no     int // no counts the processes of the rank from 1
	batches      []*batch
	done, fenced bool
	bad          bool
	began, ended int64 // ended by the harness's clock; 0 while it runs
	started      int64 // by the harness's clock
	rows         []int // the rows that it asks for, by stream
	agent        int
	status       string
	frozen       bool          // it was frozen at some time
	stood        []disturbance // the times in which it was frozen
	traps        []trapped
	saved        []saved
	model        cut.ID // the cut that it restored, or bound last
	joined       bool   // it has joined the job
	restores     int
	restored     []restored
	failedSaves  int
	hashes       map[turn]int64
	held         []whole // checkpoints that were complete in memory, in order
	group        int     // replicated: which start of the group it belongs to
	givenUp      []int64 // when the master gave up a process of the rank, since this one began
}

// saved is a checkpoint whose manifest was renamed.
type saved struct {
	cut      cut.ID
	server   int   // life of the shared model's server that the state is from
	captured int64 // when the state was copied
}

// restored is what a process went back to. For a shared model, it is what the process gave to a new
// server.
type restored struct {
	server int
	cut    cut.ID
	at     int64
	order  int64 // order of the cut, if checkpoints are in memory too
	memory bool  // it came from this node's memory
	peer   bool  // it came from the memory of another node
}

// whole is a checkpoint that was complete in memory.
type whole struct {
	cut   cut.ID
	order int64
	at    int64
}

// turn names one batch of a bit_exact step.
type turn struct{ step, virtual int }

// trapped is a kill at a named point.
type trapped struct {
	point  string
	victim int // 0: the trainer itself, 1: the master, 2: its agent
}

func (l *life) String() string { return fmt.Sprintf("rank %d life %d (%s)", l.rank, l.no, l.status) }

func (l *life) read(path string) error {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return nil // it was killed before it wrote anything
	}
	if err != nil {
		return err
	}
	type at struct{ stream, number int }
	byNumber := map[at]*batch{}
	durable := map[int]int{}
	killed := l.status == "signal: killed"
	for len(text) > 0 {
		if killed && len(text) < entrySize && (bytes.HasPrefix(text, []byte("CHJ1")) || bytes.HasPrefix([]byte("CHJ1"), text)) {
			break
		}
		if len(text) < entrySize || !bytes.HasPrefix(text, []byte("CHJ1")) {
			return fmt.Errorf("%s: not a journal, %d bytes before its end", path, len(text))
		}
		kind, stream := binary.LittleEndian.Uint16(text[4:]), int(binary.LittleEndian.Uint16(text[6:]))
		n := int(binary.LittleEndian.Uint32(text[8:]))
		number, aux := int(binary.LittleEndian.Uint64(text[16:])), int(binary.LittleEndian.Uint64(text[24:]))
		when := int64(binary.LittleEndian.Uint64(text[32:]))
		text = text[entrySize:]
		if killed && len(text) < 8*n {
			break
		}
		if len(text) < 8*n {
			return fmt.Errorf("%s: an entry of %d keys has %d bytes", path, n, len(text))
		}
		b := byNumber[at{stream, number}]
		switch kind {
		case kindStart:
			if l.joined = true; l.began == 0 {
				l.began = when
			}
		case kindYielded:
			b = &batch{stream: stream, number: number, yielded: when}
			for i := range n {
				b.keys = append(b.keys, key(binary.LittleEndian.Uint64(text[8*i:])))
			}
			byNumber[at{stream, number}] = b
			l.batches = append(l.batches, b)
		case kindApplied:
			b.applied, b.server = when, aux
		case kindStepped:
			b.stepped = when
			durable[stream] = max(durable[stream], aux)
		case kindFenced:
			l.fenced = true
		case kindDone:
			l.done = true
		case kindBad:
			l.bad = true
		case kindTrapped:
			l.traps = append(l.traps, trapped{trapPoints[number], aux})
		case kindSaved:
			l.saved = append(l.saved, saved{cut: cut.ID(aux), server: stream})
			if n == 1 {
				l.saved[len(l.saved)-1].captured = int64(binary.LittleEndian.Uint64(text))
			}
		case kindBound:
			l.model = cut.ID(aux)
		case kindRestored:
			l.model = cut.ID(aux)
			l.restores++
			r := restored{server: stream, cut: cut.ID(aux), at: when}
			if n == 2 {
				r.order = int64(binary.LittleEndian.Uint64(text))
				r.memory, r.peer = text[8] == 1, text[8] == 2
			}
			l.restored = append(l.restored, r)
		case kindHeld:
			l.held = append(l.held, whole{cut: cut.ID(aux), order: int64(binary.LittleEndian.Uint64(text)), at: when})
		case kindFailedSave:
			l.failedSaves++
		case kindHashed:
			if l.hashes == nil {
				l.hashes = map[turn]int64{}
			}
			l.hashes[turn{number, stream}] = int64(aux)
		}
		text = text[8*n:]
	}
	for _, b := range l.batches {
		b.durableWhenLastStepped = b.number <= durable[b.stream]
	}
	return nil
}
