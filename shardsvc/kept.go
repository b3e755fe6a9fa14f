package shardsvc

import (
	"fmt"
	"slices"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// keptCut is one `c` key.
type keptCut struct {
	id          uint64
	order       uint64 // grows with every cut that is frozen, or taken from a manifest
	state       CutState
	epoch       uint32
	generation  uint32
	incarnation uint64 // of the asker
	rank        int64
	step        int64
	path        string
	body        []byte    // Cut without segments, encoded; empty when voided
	units       cut.Units // of body
	records     cut.Tally // of body

	settling bool // private: the shell was asked to look at path
}

// cutUnbound is a dropped cut whose body is still needed: it says which records
// are in the model of a private rank. Nobody sees it.
const cutUnbound = cutStates

// cutValue is `c`.
type cutValue struct {
	state             CutState
	order             uint64
	epoch, generation uint32
	incarnation       uint64
	rank, step        int64
	path              string
	body              []byte
}

func (v *cutValue) append(b []byte) []byte {
	b = appendUint(append(b, valueVersion), uint32(v.state))
	b = appendUint(appendUint(appendUint(b, v.order), v.epoch), v.generation)
	b = appendInt(appendInt(appendUint(b, v.incarnation), v.rank), v.step)
	return appendString(appendString(b, v.path), v.body)
}

func decodeCutValue(b []byte) (v cutValue, err error) {
	d := open(b)
	state := d.uint()
	if state > uint64(cutUnbound) {
		d.fail(fmt.Errorf("unknown state %d of a cut", state))
	}
	v.state = CutState(state)
	v.order, v.epoch, v.generation = d.uint(), d.u32(), d.u32()
	v.incarnation, v.rank, v.step = d.uint(), d.int(), d.int()
	v.path, v.body = d.string(), d.bytes()
	if err := d.done(); err != nil {
		return v, err
	}
	if v.state == CutVoided {
		return v, nil
	}
	_, err = cut.Decode(v.body)
	return v, err
}

func (c *Core) loadCuts(l *loading) error {
	for _, s := range l.cuts {
		v := &s.val
		k := &keptCut{id: s.key.cut, order: v.order, state: v.state, epoch: v.epoch, generation: v.generation,
			incarnation: v.incarnation, rank: v.rank, step: v.step, path: v.path, body: v.body}
		if k.order > c.cutOrder || (k.rank != cut.Group) != (c.cfg.Model == Private) {
			return fmt.Errorf("stored %s: its number %d is not one of %d, or it is of another model kind", s.key, k.order, c.cutOrder)
		}
		if k.state != CutVoided {
			body := k.decode()
			if uint64(body.ID) != k.id || int64(body.Rank) != k.rank {
				return fmt.Errorf("stored %s: its body is that of %v", s.key, body.ID)
			}
			k.units, k.records = body.Units(), body.Records()
		}
		c.cuts = append(c.cuts, k)
	}
	slices.SortFunc(c.cuts, func(a, b *keptCut) int { return int(min(max(int64(a.order)-int64(b.order), -1), 1)) })
	for i := 1; i < len(c.cuts); i++ {
		if c.cuts[i].order == c.cuts[i-1].order {
			return fmt.Errorf("stored cut %016x: its number %d is that of %016x too", c.cuts[i].id, c.cuts[i].order, c.cuts[i-1].id)
		}
	}
	for _, s := range l.ranks {
		if id := s.val.base; id != 0 {
			k := c.kept(id)
			if k == nil || k.rank != int64(s.key.rank) || k.state == CutVoided {
				return fmt.Errorf("stored %s: its model began with cut %016x, which is not there", s.key, id)
			}
			c.rankOf(s.key.rank).base = k
		}
	}
	for _, k := range c.cuts {
		if err := c.fitKept(k); err != nil {
			return err
		}
	}
	for _, r := range c.ranks {
		if r.generation == c.generation {
			c.topStep = max(c.topStep, r.step)
		}
	}
	if c.folds {
		c.remark()
	}
	return nil
}

// fitKept: a kept cut lies on the lines of its partitions. It proves how far they
// had grown.
func (c *Core) fitKept(k *keptCut) error {
	if k.state == CutVoided {
		return nil
	}
	body := k.decode()
	for i := range body.Datasets {
		for j := range body.Datasets[i].Partitions {
			q := &body.Datasets[i].Partitions[j]
			p := c.partition(q.Number)
			if p == nil || p.identity != q.Identity {
				continue
			}
			for n := range q.Passes {
				c.growTo(p, line.Place(q.Passes[n].Low))
				for _, x := range q.Passes[n].Ranges {
					c.growTo(p, line.Place(x.End))
				}
			}
			if _, err := p.sets(q); err != nil {
				return fmt.Errorf("stored cut %016x: partition %s: %w", k.id, p.identity, err)
			}
		}
	}
	return nil
}

// kept finds a cut.
func (c *Core) kept(id uint64) *keptCut {
	i := slices.IndexFunc(c.cuts, func(k *keptCut) bool { return k.id == id })
	if i < 0 || id == 0 {
		return nil
	}
	return c.cuts[i]
}

// addCut keeps a new cut, the newest of all.
func (c *Core) addCut(k *keptCut, body *cut.Cut) {
	// A foreign one has its own: what is frozen from now on comes after it.
	c.cutOrder = max(c.cutOrder, body.Order) + 1
	c.dirty.job = true
	body.Order = c.cutOrder
	k.order, k.body, k.units, k.records = c.cutOrder, body.Append(nil), body.Units(), body.Records()
	c.cuts = append(c.cuts, k)
	c.putCut(k)
}

// comeAfter: what is kept from now on is newer than a checkpoint of that order, which
// this core need not know.
func (c *Core) comeAfter(order uint64) {
	if order > c.cutOrder {
		c.cutOrder, c.dirty.job = order, true
	}
}

func (c *Core) putCut(k *keptCut) {
	v := cutValue{k.state, k.order, k.epoch, k.generation, k.incarnation, k.rank, k.step, k.path, k.body}
	c.fx.put(Set, k.key, v.append)
}

func (k *keptCut) key(b []byte) []byte { return be.AppendUint64(append(b, keyCut), k.id) }

// decode gives the body of a cut that has one, without segments.
func (k *keptCut) decode() *cut.Cut {
	body, err := cut.Decode(k.body)
	if err != nil {
		panic("shardsvc: a kept cut can not be read: " + err.Error())
	}
	body.Order = k.order
	return body
}

// forgetCut removes a cut. The body of a rank's base stays.
func (c *Core) forgetCut(k *keptCut, reason string) {
	was := k.state
	k.settling = false
	c.reportCut(ReportCutDropped, k, reason)
	if k.rank != cut.Group && c.rankOf(uint32(k.rank)).base == k {
		k.state, k.path = cutUnbound, ""
		c.putCut(k)
		return
	}
	c.deleteCut(k)
	if was == CutBound && c.folds {
		c.remark()
	}
}

func (c *Core) deleteCut(k *keptCut) {
	c.cuts = slices.DeleteFunc(c.cuts, func(x *keptCut) bool { return x == k })
	c.fx.put(Delete, k.key, nil)
}

// void: the cut is not one to go back to, whatever lies on its storage.
func (c *Core) void(k *keptCut, reason string) {
	if k.state == CutVoided || k.state == cutUnbound {
		return
	}
	k.state, k.body, k.settling = CutVoided, nil, false
	c.putCut(k)
	c.reportCut(ReportCutVoided, k, reason)
}

func (c *Core) reportCut(kind ReportKind, k *keptCut, reason string) {
	r := Report{Kind: kind, Cut: k.id, Step: k.step, Path: k.path, Reason: reason}
	if k.rank != cut.Group {
		r.Rank = uint32(k.rank)
	}
	c.report(r)
}

// after: k holds what x does, and more. In one life of a group or rank that follows
// the step, as a cut may be asked at an older one; else the order of freezing.
func (c *Core) after(k, x *keptCut) bool {
	same := k.rank == x.rank && k.generation == x.generation && k.incarnation == x.incarnation
	if c.cfg.Model == Replicated {
		same = k.generation == x.generation
	}
	if same && c.cfg.Model != Shared && k.step != x.step {
		return k.step > x.step
	}
	return k.order > x.order
}

// afterForeign: k is newer than a cut that this core does not keep.
func (k *keptCut) afterForeign(x *cut.Cut) bool {
	if x.Order > 0 { // else an older version froze it
		return k.order > x.Order
	}
	return k.epoch > x.Epoch || k.epoch == x.Epoch && k.step > x.Step
}

// newest is the newest cut of the group, or of rank r, that is one of those wanted.
func (c *Core) newest(r *rank, wanted func(*keptCut) bool) (k *keptCut) {
	for _, x := range c.cuts {
		if (x.rank == cut.Group || r != nil && x.rank == int64(r.no)) && wanted(x) && (k == nil || c.after(x, k)) {
			k = x
		}
	}
	return k
}

// newestBound is the newest bound cut of the group, or of a private rank.
func (c *Core) newestBound(r *rank) *keptCut {
	return c.newest(r, func(k *keptCut) bool { return k.state == CutBound })
}

// hasBound says whether any cut is bound.
func (c *Core) hasBound() bool {
	return slices.ContainsFunc(c.cuts, func(k *keptCut) bool { return k.state == CutBound })
}
