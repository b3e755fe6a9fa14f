package rounds

// Kept is how many rounds' rows are kept after they were told. A rank that has yielded
// round y needs the rows of round y+1 and later ones. It is ready for no round further
// ahead of y than its window of batches, which is at most 2,048 (docs/PROTOCOL.md).
const Kept = 4096

// Rows has the numbers of rows of consecutive rounds.
type Rows[N uint32 | uint64] struct {
	end uint32 // the last round
	n   []N
}

// Upto takes the rows of the rounds up to end: those that were taken already, and later
// ones. If some between are not known, those before them are forgotten.
func (r *Rows[N]) Upto(end uint32, n []N) {
	if uint64(len(n)) > uint64(end) {
		n = n[uint64(len(n))-uint64(end):]
	}
	before := end - uint32(len(n)) // the round before the first one of n
	switch {
	case end <= r.end:
		return
	case before > r.end:
		r.n = r.n[:0]
	default:
		n = n[r.end-before:]
	}
	r.n, r.end = append(r.n, n...), end
}

// End is the last round whose rows are known.
func (r *Rows[N]) End() uint32 { return r.end }

// before is the round before the first one whose rows are known.
func (r *Rows[N]) before() uint32 { return r.end - uint32(len(r.n)) }

// From returns the rows of the rounds after `after`, up to the last one. If the first of
// these are not known any more, it returns the others.
func (r *Rows[N]) From(after uint32) []N {
	if after >= r.end {
		return nil
	}
	return r.n[len(r.n)-min(len(r.n), int(r.end-after)):]
}

// Of returns the rows of one round, and whether they are known.
func (r *Rows[N]) Of(round uint32) (n N, known bool) {
	i := len(r.n) - 1 - int(r.end) + int(round)
	if round == 0 || i < 0 || i >= len(r.n) {
		return 0, false
	}
	return r.n[i], true
}

// Trim forgets all but the newest Kept ones. It does so only when there are more than twice
// as many, so that they are rarely moved.
func (r *Rows[N]) Trim() {
	if len(r.n) > 2*Kept {
		r.n = append(r.n[:0], r.n[len(r.n)-Kept:]...)
	}
}

// Forget forgets the rounds up to `through`.
func (r *Rows[N]) Forget(through uint32) {
	if left := r.From(through); len(left) < len(r.n) {
		r.n = append(r.n[:0], left...)
	}
}
