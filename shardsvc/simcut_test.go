package shardsvc

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
	"github.com/headrace/headrace/shardsvc/oracle"
	"pgregory.net/rapid"
)

// cutSim has the cuts of the simulation: the manifests that processes wrote to storage, and the
// records of each cut, as the oracle knows them.
type cutSim struct {
	cuts      []*simCut
	nextCut   uint64
	manifests map[uint64]*cut.Cut // on storage, by cut; its path is its id
	looks     []uint64            // cuts that the shell was asked to look for
	orders    []uint64            // cuts in the order of their freezing
	bases     map[uint32]*simCut  // by private rank: the cut that its model began with

	memories    map[uint64]bool       // cuts whose checkpoints lie in the nodes' memory
	carriedOnce map[uint64]bool       // cuts that a framework keeps in its own files
	bodies      map[uint64]*cut.Cut   // of all cuts that were ever frozen
	removed     map[uint64]bool       // cuts whose manifests retention removed
	untold      map[uint64]oracle.Set // of all cuts that were ever frozen
	vague       bool                  // a restored cut has records that are excluded
	captured    map[uint64]oracle.Set // shared: the records in the model that the saver copied during a pause of yields, by cut
	wiped       bool                  // the master knows nothing: a process that starts restores first
}

type simCut struct {
	id    uint64
	rank  int64
	step  int64
	state CutState
	order int
	life  uint64 // the generation or incarnation that asked for it
	set   oracle.Set
	body  *cut.Cut
}

// after says whether k holds all records of x, and more.
func (k *simCut) after(x *simCut) bool {
	if k.rank == x.rank && k.life == x.life && k.life != 0 && k.step != x.step {
		return k.step > x.step
	}
	return k.order > x.order
}

func (s *sim) cutOf(id uint64) *simCut {
	i := slices.IndexFunc(s.cuts, func(k *simCut) bool { return k.id == id })
	if i < 0 {
		return nil
	}
	return s.cuts[i]
}

// cutReport tells the oracle what became of a cut.
func (s *sim) cutReport(r Report) {
	k := s.cutOf(r.Cut)
	rank := int64(cut.Group)
	if s.model == Private {
		rank = int64(r.Rank)
	}
	switch r.Kind {
	case ReportCutFrozen:
		s.frozen(r)
	case ReportCutBound:
		if k == nil { // the cut was frozen before the master lost its disk
			k = s.foreign(r.Cut)
		}
		k.state = CutBound
		if !s.superseded(k) {
			s.book.Bind(k.set)
			if k.rank != cut.Group {
				if b := s.bases[uint32(k.rank)]; b == nil || k.after(b) {
					s.bases[uint32(k.rank)] = k
				}
			}
		}
	case ReportCutMemory:
		if k == nil {
			k = s.foreign(r.Cut)
		}
		k.state = CutMemory
	case ReportCutVoided:
		k.state = CutVoided
	case ReportCutDropped:
		s.cuts = slices.DeleteFunc(s.cuts, func(x *simCut) bool { return x == k })
	case ReportResolveCut:
		s.looks = append(s.looks, r.Cut)
	case ReportPendingAgain:
		s.sameBack(r, s.book.TakeBack(r.Rank, s.floor(r.Rank)), 0, false)
	case ReportRestored:
		set, untold := oracle.Set{}, oracle.Set{}
		if k != nil {
			set, untold = s.book.WithoutExcluded(k.set), s.untold[k.id]
			s.vague = s.vague || len(set) < len(k.set)
		}
		mixed := len(untold) + len(s.book.Untold(s.book.Acked()))
		n, more, err := s.book.Restore(rank, set, untold)
		s.fail(err)
		s.sameBack(r, n, more, mixed > 0)
		s.rebase(rank, k)
	}
}

func (s *sim) rebase(rank int64, k *simCut) {
	if rank != cut.Group {
		s.bases[uint32(rank)] = k
	}
}

// foreign makes a cut from its manifest. The master that froze it has lost its disk.
func (s *sim) foreign(id uint64) *simCut {
	body := s.bodies[id] // not from s.manifests: a trainer may have offered it before it was removed
	if body == nil {
		s.t.Fatalf("cut %d was bound, and nobody ever asked for it", id)
	}
	s.orders = append(s.orders, id)
	k := &simCut{id: id, rank: int64(body.Rank), step: body.Step, order: len(s.orders), body: body, set: oracle.Set{}}
	for _, d := range body.Datasets {
		for i := range d.Partitions {
			s.expand(&d.Partitions[i], k.set)
		}
	}
	s.cuts = append(s.cuts, k)
	return k
}

// superseded says whether a newer bound cut of its rank has all records of k.
func (s *sim) superseded(k *simCut) bool {
	return slices.ContainsFunc(s.cuts, func(x *simCut) bool { return x.rank == k.rank && x.state == CutBound && x != k && x.after(k) })
}

// floor is the step of the newest cut that a lost rank may go back to. Its acks above that step
// become pending again.
func (s *sim) floor(rank uint32) int64 {
	best := s.bases[rank]
	for _, k := range s.cuts {
		if k.rank == int64(rank) && (k.state == CutBound || k.state == CutCarried || k.state == CutMemory) && (best == nil || k.after(best)) {
			best = k
		}
	}
	if best == s.bases[rank] {
		return -1
	}
	return best.step
}

// frozen checks that the core's cut has the records that the oracle has for it. They never
// change.
func (s *sim) frozen(r Report) {
	body, ok := s.w.core.CutBody(r.Cut)
	if !ok {
		s.t.Fatalf("cut %d was frozen, but the core does not have it", r.Cut)
	}
	k := &simCut{id: r.Cut, rank: int64(body.Rank), step: body.Step, order: len(s.orders) + 1, body: body, set: s.book.Members(int64(body.Rank), body.Step)}
	switch s.model {
	case Replicated:
		k.life = uint64(body.Generation)
	case Private:
		k.life = s.w.core.kept(r.Cut).incarnation
	default:
		k.set = s.book.Members(cut.Group, 1<<62)
	}
	s.orders = append(s.orders, k.id)
	if r.Path == "" {
		k.state, s.carriedOnce[k.id] = CutCarried, true
	} else if s.w.core.kept(r.Cut).state == CutMemory {
		k.state, s.memories[k.id] = CutMemory, true
	}
	s.cuts, s.bodies[k.id] = append(s.cuts, k), body
	s.holds(k, body)
	s.untold[k.id] = s.book.Untold(k.set)
	s.counts(k, body)
	s.exactAsCaptured(k, body)
}

// holds compares the records of a body with those that the oracle kept.
func (s *sim) holds(k *simCut, body *cut.Cut) {
	set := oracle.Set{}
	for _, d := range body.Datasets {
		for i := range d.Partitions {
			s.expand(&d.Partitions[i], set)
		}
	}
	if err := s.book.WithoutExcluded(set).Same(s.book.WithoutExcluded(k.set)); err != nil {
		s.t.Fatalf("cut %d of rank %d at step %d has other records in the core (first) than in the oracle (second): %v", k.id, k.rank, k.step, err)
	}
}

// expand adds the records of q to set. Those of q are in order space, those of set are not.
func (s *sim) expand(q *cut.Partition, set oracle.Set) {
	p := s.w.core.parts[q.Number]
	sets, err := p.sets(q)
	s.fail(err)
	for n := range sets {
		ps := p.line(uint32(n))
		for _, x := range sets[n].Spans() {
			ps.EachPiece(x.Start, x.End, func(_ int64, g *line.Segment, start, end int64) {
				set.Add(oracle.Range{Partition: s.src(p.no), Pass: uint32(n), Segment: g.ID, Start: start, End: end})
			})
		}
	}
}

// cutAnswered plays what a trainer does with the answer to a call.
func (s *sim) cutAnswered(t *simTrainer, r Reply) {
	if r.Cut.Body != nil {
		s.holds(s.cutOf(r.Cut.Cut), r.Cut.Body) // a repeated answer has the same records
	}
	if t == nil || s.pauseAnswered(t, r) {
		return
	}
	switch {
	case r.Cut.Code == CutFenced && t.ending: // its agent ends it and reports that
		return
	case r.Cut.Code == CutFenced:
		s.remove(t)
	case r.Cut.Body != nil && s.model != Shared:
		t.step = max(t.step, r.Step) // after END it may ask for a later step
		return
	case t.restoring != r.Request:
		return
	case r.Cut.Code == CutOK:
		if t.gated || t.step == 0 {
			t.step = r.Step
		}
		t.gated, t.restored, t.restoring = false, true, 0
		if k := s.cutOf(r.Cut.Cut); k != nil && s.manifests[k.id] == nil && k.state != CutVoided && !s.carriedOnce[k.id] && !s.removed[k.id] && !s.memories[k.id] {
			s.t.Fatalf("rank %d was told to restore cut %d, which nobody can read", t.rank, r.Cut.Cut)
		}
	case r.Cut.Code == CutAgain:
		if t.restoring = 0; t.since == 0 {
			t.since = s.w.now
		}
		return // it goes on calling
	case r.Cut.Code == CutTry:
		t.restoring, t.try = 0, r.Cut.Cut
		if s.manifests[t.try] == nil {
			t.failed, t.try = append(t.failed, t.try), 0
		}
	case r.Cut.Code == CutRefused:
		if t.restoring = 0; t.offered != 0 {
			t.failed = append(t.failed, t.offered)
		} else if t.gated = !t.start || s.model != Shared; t.gated {
			t.start = true // no checkpoint that it sees can be restored
		}
	}
	t.calling, t.since = t.restoring != 0, 0
}

func (s *sim) call(t *simTrainer, k CutCall) {
	if t.agent == nil || t.agent.session == 0 || !t.joined {
		return
	}
	t.call++
	k.Worker, k.ID = t.number, t.call
	if k.Restore != nil {
		t.restoring, t.calling = t.call, true
	}
	s.send(t.agent, &Message{Calls: []CutCall{k}})
}

func (s *sim) someAsk() {
	t := s.some()
	if t == nil {
		return
	}
	s.nextCut++
	k := &CutAsk{Cut: s.nextCut, Step: t.step + rapid.Int64Range(-2, 2).Draw(s.t, "at"), Deadline: Time(rapid.IntRange(0, 3).Draw(s.t, "deadline")) * Second}
	if len(s.cuts) > 0 && rapid.IntRange(0, 4).Draw(s.t, "old") == 0 {
		x := s.cuts[rapid.IntRange(0, len(s.cuts)-1).Draw(s.t, "again")]
		k.Cut, k.Step = x.id, x.step
	}
	k.Carried = rapid.IntRange(0, 3).Draw(s.t, "carried") == 0
	if !k.Carried {
		k.Path = fmt.Sprint("/", k.Cut)
		k.Memory = s.model != Shared && rapid.IntRange(0, 2).Draw(s.t, "memory") == 0
	}
	s.call(t, CutCall{Ask: k})
}

// someSave lets a process write its manifest. It may have been fenced since it asked for
// the cut.
func (s *sim) someSave() {
	if k := s.someCut(); k != nil && k.state != CutCarried && k.state != CutBound {
		s.manifests[k.id] = k.body
	}
}

func (s *sim) someCut() *simCut {
	if len(s.cuts) == 0 {
		return nil
	}
	return s.cuts[rapid.IntRange(0, len(s.cuts)-1).Draw(s.t, "cut")]
}

func (s *sim) someBind() {
	k, t := s.someCut(), s.some()
	if k != nil && t != nil && s.manifests[k.id] != nil {
		s.call(t, CutCall{Bind: &CutBind{k.id, fmt.Sprint("/", k.id)}})
	}
}

// someDrop ends a save attempt, or removes a checkpoint as retention does. It first drops the
// cut. Then it removes the manifest, unless it dies in between.
func (s *sim) someDrop() {
	k, t := s.someCut(), s.some()
	if k == nil || t == nil || k.state == CutVoided {
		return
	}
	s.call(t, CutCall{Drop: &CutDrop{k.id, "removed"}})
	if s.cutOf(k.id) == nil && rapid.IntRange(0, 3).Draw(s.t, "then dies") > 0 {
		delete(s.manifests, k.id)
		s.removed[k.id] = true
	}
}

// loseMemory loses the memory that has a cut: a node is lost, or a slot is used again. It leaves
// the cut that a group is going back to. If a node is lost then, its rank is lost too, which
// ends the generation.
func (s *sim) loseMemory() {
	k := s.someCut()
	if c := s.w.core; k != nil && !(c.phase == restoreWaits && c.choice == k.id) {
		delete(s.memories, k.id)
	}
}

func (s *sim) someLookDone() {
	if len(s.looks) == 0 {
		return
	}
	id := s.looks[0]
	s.looks = s.looks[1:]
	s.step(&ResolveCut{Cut: id, Found: s.manifests[id] != nil}, false)
}

// restore: the trainer offers the newest manifest that it sees, or another one.
func (s *sim) restore(t *simTrainer) {
	if t.agent == nil || t.agent.session == 0 || !t.joined {
		return
	}
	k := &RestoreCall{Failed: slices.Clone(t.failed)}
	if all := s.readable(t); len(all) > 0 {
		k.Cut = all[len(all)-1]
		if !s.calm && rapid.IntRange(0, 3).Draw(s.t, "exact") == 0 {
			k.Mode, k.Cut = RestoreExact, all[rapid.IntRange(0, len(all)-1).Draw(s.t, "which")]
		}
		switch id := uint64(k.Cut.ID); {
		case s.memories[id] && (s.manifests[id] == nil || rapid.Bool().Draw(s.t, "from memory")):
			k.Memory = true
		case s.manifests[id] == nil:
			k.Mode = RestoreExact // the cut is in a framework's file
		default:
			k.Path = fmt.Sprint("/", k.Cut.ID)
		}
	}
	if t.try != 0 && s.manifests[t.try] != nil {
		k.Mode, k.Cut, k.Path = RestoreNewest, s.manifests[t.try], fmt.Sprint("/", t.try)
	}
	t.try = 0
	if k.Cut == nil && t.start || !s.calm && rapid.IntRange(0, 9).Draw(s.t, "start") == 0 {
		*k = RestoreCall{Mode: RestoreStart}
	}
	if t.offered = 0; k.Cut != nil {
		t.offered = uint64(k.Cut.ID)
	}
	if t.since > 0 {
		k.Waited = s.w.now - t.since
	}
	s.call(t, CutCall{Restore: k})
}

// readable are the checkpoints that t sees, oldest first.
func (s *sim) readable(t *simTrainer) (all []*cut.Cut) {
	for id := range s.nextCut + 1 {
		k := s.manifests[id]
		if x := s.cutOf(id); k == nil && x != nil && x.state == CutCarried {
			k = x.body
		}
		if k == nil && s.memories[id] {
			k = s.bodies[id]
		}
		if k != nil && (k.Rank == cut.Group || k.Rank == cut.Rank(t.rank)) && !slices.Contains(t.failed, id) {
			all = append(all, k)
		}
	}
	slices.SortStableFunc(all, func(a, b *cut.Cut) int {
		return cmp.Or(cmp.Compare(a.Epoch, b.Epoch), cmp.Compare(a.Step, b.Step))
	})
	return all
}

func (s *sim) someRestore() {
	if t := s.some(); t != nil && (t.gated || rapid.IntRange(0, 9).Draw(s.t, "for fun") == 0) {
		s.restore(t)
	}
}

// someRewind: a person asks what a rewind would do, then makes it. Both must agree.
func (s *sim) someRewind() {
	var body *cut.Cut
	if k := s.someCut(); k != nil && s.manifests[k.id] != nil {
		body = s.manifests[k.id]
	} else if rapid.IntRange(0, 3).Draw(s.t, "to the start") > 0 {
		return
	}
	deleted := s.someDeletions(body)
	plan := s.w.core.PlanRewind(body, deleted.all)
	if plan.Refused != "" {
		return
	}
	want := comesAgain{Tally: plan.Records}
	for _, a := range plan.Again {
		want.units += a.Units
	}
	path := ""
	if body != nil {
		path = fmt.Sprint("/", body.ID)
	}
	s.step(&Rewind{Cut: body, Path: path}, false)
	for _, r := range s.w.fx.Reports {
		if r.Kind == ReportRewound {
			if got := (comesAgain{r.Units, r.Records}); got != want && !s.vague {
				s.t.Fatalf("a rewind made %+v pending again, its dry run said %+v", got, want)
			}
			deleted.missed(plan.Gone)
			return
		}
	}
	s.t.Fatalf("a rewind that its dry run allowed was not made")
}

// loseAll loses the master's disk. Records that were in no manifest are in no model then.
func (s *sim) loseAll() {
	if s.live || s.opt.Shuffle || rapid.IntRange(0, 2).Draw(s.t, "really") > 0 {
		return // the oracle knows partitions by number, so none may get another number
	}
	clear(s.w.store)
	for _, a := range s.agents {
		a.session = 0
		a.inc += 1 << 32
	}
	s.trainers, s.looks, s.ended = nil, nil, false
	clear(s.granted)
	clear(s.bases)
	for _, k := range s.cuts {
		if s.manifests[k.id] != nil || k.state == CutCarried {
			s.manifests[k.id] = k.body
		}
	}
	s.cuts, s.carriedOnce, s.wiped = nil, map[uint64]bool{}, true
	s.book.Forget()
	s.w.restart0(s.t)
	s.committed(&Start{})
	s.applyAgain()
}

// revoked: the agent drops the records of a revoked lease that it has read, and its trainer those that it was given.
func (s *sim) revoked(token Token) {
	for _, t := range s.trainers {
		t.leases = slices.DeleteFunc(t.leases, func(l *simLease) bool { return l.token == token })
	}
}
