package memsource

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

var places atomic.Int64

type place struct{ log *Log }

func (p place) Produce(_ testing.TB, records [][]byte) {
	for i, r := range records {
		p.log.Append(i%2, r)
	}
}

func (p place) Open(_ testing.TB, known []sources.Segment) sources.Source {
	return p.log.Open(false, known)
}

func TestALogWhoseSegmentsRollOverPassesTheSuite(t *testing.T) {
	sourcetest.Run(t, sourcetest.Harness{
		Count: 20_000, Contiguous: true,
		New: func(testing.TB) sourcetest.Place { return place{NewLog(fmt.Sprintf("suite-%d", places.Add(1)), 2)} },
		Tail: func(_ testing.TB, p sourcetest.Place) sources.Source {
			return p.(place).log.Open(true, nil)
		},
		Roll: func(_ testing.TB, p sourcetest.Place) {
			for i := range 2 {
				p.(place).log.Roll(i)
			}
		},
		Remove: func(_ testing.TB, p sourcetest.Place) {
			for i := range 2 {
				p.(place).log.Roll(i)
				p.(place).log.Trim(i, 1)
			}
		},
	})
}
