package cut

import (
	"cmp"
	"math"
	"sort"
)

// settled checks everything that the cut says is settled in p.
func (p *Partition) settled(in *room) *Error {
	if e := p.DoneUnits.check(); e != nil {
		return e.In("done_units")
	}
	if e := p.DoneRecords.check(p.DoneUnits); e != nil {
		return e.In("done_records")
	}
	next := p.Done
	for i := range p.Passes {
		q := &p.Passes[i]
		if q.Pass < next || q.Pass == math.MaxUint32 {
			return invalid("pass", "%d, must be %d or more", q.Pass, next).at("passes", i)
		}
		next = q.Pass + 1
		if e := q.check(in); e != nil {
			return e.at("passes", i)
		}
	}
	for i := range p.Excluded {
		e := p.Excluded[i].check(in)
		if e == nil && i > 0 && !p.Excluded[i].after(&p.Excluded[i-1]) {
			e = invalid("", "%v of pass %d does not come after the one before it", p.Excluded[i].Piece, p.Excluded[i].Pass)
		}
		if e != nil {
			return e.at("excluded", i)
		}
	}
	for i := range p.Dropped {
		x := &p.Dropped[i]
		e := x.check(in)
		switch {
		case e != nil:
		case i > 0 && !after(p.Dropped[i-1].Pass, p.Dropped[i-1].Piece, x.Pass, x.Piece):
			e = invalid("", "%v of pass %d does not come after the one before it", x.Piece, x.Pass)
		case !p.settles(x):
			e = invalid("range", "%v of pass %d is not settled", x.Piece, x.Pass)
		}
		if e != nil {
			return e.at("dropped", i)
		}
	}
	return nil
}

func (x *Drop) check(in *room) *Error {
	p := x.Piece
	switch {
	case p.Start >= p.End || !in.holds(Place{p.Segment, p.Start}) || !in.holds(Place{p.Segment, p.End}):
		return invalid("range", "%v is empty or lies in no segment", p)
	case x.Units < 1 || x.Units > p.End-p.Start:
		return invalid("units", "%d, must be 1 to %d", x.Units, p.End-p.Start)
	case x.Step < 0:
		return invalid("step", "%d, must not be negative", x.Step)
	}
	return nil
}

// settles says whether the cut says that all of x is settled.
func (p *Partition) settles(x *Drop) bool {
	if x.Pass < p.Done {
		return true
	}
	at, end := Place{x.Piece.Segment, x.Piece.Start}, Place{x.Piece.Segment, x.Piece.End}
	for i := range p.Passes {
		q := &p.Passes[i]
		if q.Pass != x.Pass {
			continue
		}
		if end.Compare(q.Low) <= 0 {
			return true
		}
		if at.Compare(q.Low) < 0 {
			at = q.Low
		}
		j := sort.Search(len(q.Ranges), func(j int) bool { return at.Compare(q.Ranges[j].End) < 0 })
		for ; j < len(q.Ranges) && q.Ranges[j].Start.Compare(at) <= 0; j++ {
			if at = q.Ranges[j].End; end.Compare(at) <= 0 {
				return true
			}
		}
	}
	return false
}

func (q *Pass) check(in *room) *Error {
	if !in.holds(q.Low) {
		return invalid("low", "%v lies in no segment", q.Low)
	}
	if e := q.Units.check(); e != nil {
		return e.In("units")
	}
	if e := q.Records.check(q.Units); e != nil {
		return e.In("records")
	}
	at := q.Low
	for i := range q.Ranges {
		r := &q.Ranges[i]
		if r.Kind < kinds && at.Compare(r.Start) <= 0 && r.Start.Compare(r.End) < 0 && in.holds(r.Start) && in.holds(r.End) {
			at = r.End
			continue // there may be a million
		}
		e := r.wrong(in, at, i == 0)
		return e.at(r.Kind.String(), q.nth(i)).In("ranges")
	}
	return nil
}

// wrong says why r cannot follow at, the end of the range before it.
func (r *Range) wrong(in *room, at Place, first bool) *Error {
	switch {
	case r.Kind >= kinds:
		return invalid("", "there is no kind %d of range", r.Kind)
	case r.Start.Compare(r.End) >= 0:
		return invalid("", "%v is empty", r)
	case !in.holds(r.Start) || !in.holds(r.End):
		return invalid("", "%v lies in no segment", r)
	case first:
		return invalid("", "%v lies below the low mark %v", r, at)
	}
	return invalid("", "%v does not come after the range before it, which ends at %v", r, at)
}

// nth returns the index of range i among the ranges of its kind, which is its index in
// the JSON form.
func (q *Pass) nth(i int) (n int) {
	for j := range i {
		if q.Ranges[j].Kind == q.Ranges[i].Kind {
			n++
		}
	}
	return n
}

func (e *Exclusion) check(in *room) *Error {
	p := e.Piece
	switch {
	case p.Start >= p.End || !in.holds(Place{p.Segment, p.Start}) || !in.holds(Place{p.Segment, p.End}):
		return invalid("range", "%v is empty or lies in no segment", p)
	case e.Units < 0:
		return invalid("units", "%d, must not be negative", e.Units)
	case len(e.Kind)+len(e.Reason) > 64<<10 && !in.bare:
		return invalid("reason", "longer than 65536 bytes")
	}
	return nil
}

func (e *Exclusion) after(before *Exclusion) bool {
	return after(before.Pass, before.Piece, e.Pass, e.Piece)
}

// after says whether piece p of a pass comes after another one.
func after(beforePass uint32, before Piece, pass uint32, p Piece) bool {
	return cmp.Or(cmp.Compare(beforePass, pass), cmp.Compare(before.Segment, p.Segment), cmp.Compare(before.End-1, p.Start)) < 0
}

func (u *Units) check() *Error {
	if min(u.Acked, u.Excluded, u.Dropped) < 0 || max(u.Acked, u.Excluded, u.Dropped) > math.MaxInt64/4 {
		return invalid("", "%d acked, %d excluded, %d dropped: each must be 0 to 2^61", u.Acked, u.Excluded, u.Dropped)
	}
	return nil
}

// check checks the tally of acked units; nil is a tally that nobody counted.
func (t *Tally) check(of Units) *Error {
	if t == nil {
		return nil
	}
	if field, err := t.wrong(of.Acked); err != nil {
		return invalid(field, "%v", err)
	}
	return nil
}
