package chaos

import (
	"bytes"
	"context"
	"math/rand/v2"
	"time"
)

// produce writes all records of an input into its topic, ordered by id, in runs of random length to one
// partition after the other. With a rate it takes its time, and survives the broker's deaths.
func (in *input) produce(ctx context.Context, r *rand.Rand, rate float64) error {
	to, err := in.queue.writer(in)
	if err != nil {
		return err
	}
	defer to.close()
	ends := make([]int64, in.partitions)
	began := time.Now()
	for id, p := 0, 0; id < in.records; p = (p + 1) % in.partitions {
		n := min(1+r.IntN(400), in.records-id)
		var values [][]byte
		for k := range n {
			var value bytes.Buffer
			in.record(&value, r, id+k)
			values = append(values, bytes.TrimRight(value.Bytes(), "\r\n"))
		}
		if rate > 0 {
			if err := until(ctx, began.Add(time.Duration(float64(id+n)/rate*float64(time.Second)))); err != nil {
				return err
			}
		}
		in.sending()
		err := to.append(ctx, r, p, ends[p], values, func(i int, segment string, at int64) { in.putIn(p, segment, at, id+i) })
		in.sent()
		if err != nil {
			return err
		}
		ends[p] += int64(n)
		id += n
	}
	return nil
}

func until(ctx context.Context, then time.Time) error {
	t := time.NewTimer(time.Until(then))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
