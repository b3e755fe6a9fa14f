package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// linger is how long a record waits for others, as with Kafka's own clients.
const linger = 5 * time.Millisecond

// trickle writes records at a rate until ctx ends. All records that are due at one time go
// to one partition; the next ones go to the next partition.
func trickle(ctx context.Context, b broker, rate, partitions int) error {
	write, end, err := b.writer(ctx, "events", partitions)
	if err != nil {
		return err
	}
	defer end()
	fmt.Println(b.address())
	due := time.NewTicker(linger)
	defer due.Stop()
	for n, began := int64(0), time.Now(); ; {
		var values [][]byte
		for until := int64(time.Since(began).Seconds() * float64(rate)); n < until; n++ {
			made := began.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
			v := binary.LittleEndian.AppendUint64(nil, uint64(made.UnixNano()))
			values = append(values, binary.LittleEndian.AppendUint64(v, uint64(n)))
		}
		if len(values) > 0 {
			if err := write(ctx, values); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
		}
		select {
		case <-due.C:
		case <-ctx.Done():
			return nil
		}
	}
}
