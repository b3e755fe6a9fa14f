package feed

import (
	"errors"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/headrace/headrace/agent/hold"
	"github.com/headrace/headrace/agent/stepfile"
	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/frame"
)

// stepFiles are the files in which the trainers of a shared model write down what they have
// stepped (agent/stepfile). Two kinds of step are in them alone: those that a trainer had not
// sent when it was ended, and those that died with the agent before this one.
type stepFiles struct {
	srv    *Server
	folder *stepfile.Folder // nil: there can be none

	mu    sync.Mutex
	known map[frame.Incarnation]uint32 // processes that the core knows, and their numbers
}

// lookEvery is how often we look for processes that ended before they came to us.
const lookEvery = 200 * time.Millisecond

func (o *stepFiles) open() {
	folder, err := stepfile.Open(o.srv.cfg.Socket, o.srv.cfg.Agent)
	if err != nil {
		o.srv.cfg.Logger.Warn("trainers have no step files: if a trainer and this agent are both killed, batches that the trainer had stepped may come again", "error", err)
		return
	}
	o.folder = folder
	if err := folder.Sweep(); err != nil {
		o.srv.cfg.Logger.Warn("old step files of agents that never came back cannot be removed", "error", err)
	}
}

// close removes the folder, unless trainers have something in it.
func (o *stepFiles) close() {
	if o.folder != nil {
		o.folder.Close()
	}
}

// path is what WELCOME says.
func (o *stepFiles) path(model string) string {
	if o.folder == nil || model != "shared" {
		return ""
	}
	return o.folder.Path
}

// know takes the number of a process, and gives the one that it had before; 0: none.
func (o *stepFiles) know(p frame.Incarnation, worker uint32) (before uint32) {
	o.mu.Lock()
	defer o.mu.Unlock()
	before, o.known[p] = o.known[p], worker
	return before
}

// unknow gives the process that has a number, and forgets it.
func (o *stepFiles) unknow(worker uint32) (p frame.Incarnation, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for p, n := range o.known {
		if n == worker {
			delete(o.known, p)
			return p, true
		}
	}
	return 0, false
}

// forgotten removes the step files of a worker that has no open stream any more: they say
// nothing new.
func (o *stepFiles) forgotten(worker uint32) {
	if o.folder == nil {
		return
	}
	o.srv.wg.Go(func() {
		files := o.files()
		p, ok := o.unknow(worker) // first the list: a process that comes again has new files
		for _, f := range files {
			if ok && f.Incarnation == p {
				o.remove(f)
			}
		}
	})
}

func (o *stepFiles) remove(f stepfile.File) {
	if err := f.Remove(); err != nil && !errors.Is(err, fs.ErrNotExist) {
		o.srv.cfg.Logger.Warn("a step file cannot be removed", "error", err)
	}
}

func (o *stepFiles) files() []stepfile.File {
	if o.folder == nil {
		return nil
	}
	files, err := o.folder.List()
	if err != nil {
		o.srv.cfg.Logger.Warn("the step files of trainers cannot be listed", "error", err)
	}
	return files
}

// read gives what the step files of an ended process say, by the steps that they end with.
func (o *stepFiles) read(files []stepfile.File) (all []*stepfile.Stream) {
	for _, f := range files {
		s, err := f.Read()
		switch {
		case errors.Is(err, fs.ErrNotExist): // it said goodbye
		case err != nil:
			o.srv.cfg.Logger.Warn("a step file cannot be read: batches that its trainer had stepped and not reported come again", "error", err)
		default:
			if s.Missing > 0 {
				o.srv.cfg.Logger.Warn("a step file was full: stepped batches come again", "file", f.Path, "rank", s.Rank, "batches", s.Missing)
			}
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b *stepfile.Stream) int { return int(a.Step - b.Step) })
	return all
}

// rest says the steps that t's process, which has ended, did not send.
func (o *stepFiles) rest(t *trainer) {
	files := slices.DeleteFunc(o.files(), func(f stepfile.File) bool { return f.Incarnation != t.hello.Incarnation })
	for _, s := range o.read(files) {
		if s.Through == s.Durable {
			continue
		}
		ev := &hold.Stepped{Stream: hold.Stream{Worker: t.number, Number: s.About.Stream}, Step: s.Step, Batches: 1, Through: s.Through}
		if a := o.srv.cfg.Desk.Do(ev); a.Invalid != "" {
			o.srv.cfg.Logger.Warn("the steps in an ended trainer's step file do not follow from its reports", "rank", t.hello.Rank, "pid", t.hello.PID, "reason", a.Invalid)
		}
	}
}

// TakeStepFiles asserts what trainers had that ended before this agent began, and goes on
// looking for those that end before they have found it. Call it once, after Listen.
func (s *Server) TakeStepFiles() {
	if s.stepFiles.folder == nil {
		return
	}
	s.stepFiles.take()
	s.wg.Go(func() {
		tick := time.NewTicker(lookEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				s.stepFiles.take()
			case <-s.stopped.Done():
				return
			}
		}
	})
}

// take asserts the leases of ended processes that the core does not know.
func (o *stepFiles) take() {
	byProcess := map[frame.Incarnation][]stepfile.File{}
	for _, f := range o.files() {
		byProcess[f.Incarnation] = append(byProcess[f.Incarnation], f)
	}
	for p, files := range byProcess {
		if o.isKnown(p) || !o.ended(files) || o.isKnown(p) { // it may come while we look, and end
			continue
		}
		if said := o.read(files); len(said) > 0 {
			o.takeProcess(p, said)
		} else {
			for _, f := range files {
				o.remove(f)
			}
		}
	}
}

func (o *stepFiles) isKnown(p frame.Incarnation) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, known := o.known[p]
	return known
}

func (o *stepFiles) ended(files []stepfile.File) bool {
	for _, f := range files {
		ended, err := f.Ended()
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			o.srv.cfg.Logger.Warn("a step file cannot be opened", "error", err)
		case !ended:
			return false
		}
	}
	return true
}

// takeProcess has the core speak for a process that has ended.
func (o *stepFiles) takeProcess(p frame.Incarnation, said []*stepfile.Stream) {
	about, number := said[0].About, o.srv.cfg.Desk.NextWorker()
	o.know(p, number)
	join := &hold.Join{Ended: true, Join: &pb.Join{
		Worker: number, Rank: about.Rank, Incarnation: uint64(p), WorldSize: about.WorldSize,
		Pid: about.PID, Generation: about.Generation, MadeAt: about.MadeNS,
	}}
	batches, stepped := 0, 0
	for _, s := range said {
		join.Resume = append(join.Resume, resumeOf(s))
		batches, stepped = batches+len(s.Batches), stepped+int(s.Through-s.Durable)
	}
	o.srv.cfg.Logger.Info("a trainer ended while no agent was there; its step file has its steps", "rank", about.Rank, "pid", about.PID, "batches", batches, "stepped", stepped)
	if a := o.srv.cfg.Desk.Do(join); a.Invalid != "" {
		o.srv.cfg.Logger.Warn("the step file of an ended trainer contradicts itself", "rank", about.Rank, "pid", about.PID, "reason", a.Invalid)
		o.forgotten(number)
		return
	}
	o.srv.cfg.Desk.Do(&hold.Gone{Worker: number, Reason: pb.Leave_EXITED, Ended: true, Detail: "it ended while no agent was there"})
}

func resumeOf(s *stepfile.Stream) hold.Resume {
	r := hold.Resume{Stream: s.About.Stream, Dataset: s.Dataset, Tracked: true, Stepped: s.Through, Acked: s.Durable}
	if s.Virtual != nil {
		r.Virtual = *s.Virtual + 1
	}
	for _, b := range s.Batches {
		r.Batches = append(r.Batches, resumedBatch(b))
	}
	return r
}
