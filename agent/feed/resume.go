package feed

import (
	"context"
	"fmt"

	"github.com/headrace/headrace/agent/hold"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/shardsvc/rounds"
)

// resume opens the streams again that a trainer brings from the agent before this one. It
// returns what the core must know of them.
func (t *trainer) resume(ctx context.Context, entries []frame.ResumeEntry) ([]hold.Resume, error) {
	out := make([]hold.Resume, 0, len(entries))
	for _, e := range entries {
		st, err := t.newStream(ctx, e.Stream, e.Open)
		if err != nil {
			t.closeStreams()
			return nil, fmt.Errorf("resume stream %d: %w", e.Stream, err)
		}
		r := hold.Resume{Stream: e.Stream, Dataset: st.ds.ID, Virtual: st.virtual, Tracked: st.track, Strict: st.ds.Spec.Order == "strict", Stepped: e.Through, Acked: e.Acked}
		if st.rounds != nil {
			if e.Round != nil {
				st.rounds.Told, st.rounds.ToldLast = e.Round.Through, e.Round.Last
				st.rounds.ToldRows = frame.RowsOf(e.Round.Rows, min(rounds.Kept, int(e.Round.Through)))
				st.round.said = said{e.Round.Through, e.Round.Last, e.Round.Over}
				st.round.rows.Upto(e.Round.Through, st.rounds.ToldRows)
			}
			r.Rounds = st.rounds
		}
		st.delivered, st.stepped = e.Acked, e.Through
		for _, b := range e.Batches {
			rb := resumedBatch(b)
			if !st.track { // delivered is acked
				rb.Stepped, r.Stepped = true, b.Number
			}
			r.Batches = append(r.Batches, rb)
			st.delivered = b.Number
		}
		t.alone.resumed(st, st.delivered-min(st.delivered, st.stepped))
		out = append(out, r)
	}
	return out, nil
}

func resumedBatch(b frame.ResumeBatch) hold.ResumedBatch {
	rb := hold.ResumedBatch{Number: b.Number, Rows: b.Rows, Spans: make([]hold.Span, 0, len(b.Spans))}
	if b.Step != nil {
		rb.Stepped, rb.Step = true, *b.Step
	}
	for _, sp := range b.Spans {
		rb.Spans = append(rb.Spans, hold.Span{
			Token:   hold.Token{Epoch: sp.Epoch, Term: sp.Term, Sequence: sp.Sequence},
			Dataset: sp.Dataset, Partition: sp.Partition, Pass: sp.Pass, Segment: sp.Segment, From: sp.LeaseFrom, To: sp.LeaseTo,
			Told: sp.Told, Tally: hold.Tally{Rows: sp.Rows, Oldest: sp.Oldest, Newest: sp.Newest},
		})
	}
	return rb
}
