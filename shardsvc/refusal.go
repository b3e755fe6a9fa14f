package shardsvc

import (
	"errors"
	"fmt"
)

// Refusal says why a restore is refused, with the numbers of the wire.
type Refusal uint8

const (
	RefusedOther      Refusal = iota
	RefusedOthers             // others train the shared model
	RefusedGivenUp            // the cut is voided, or its checkpoint is being removed
	RefusedUnverified         // no bound checkpoint verifies
	RefusedTaken              // records of the cut are in another model, or leased to another rank
	RefusedSegments           // the job knows other segments than the cut
	RefusedChanged            // the source has changed since the cut was taken
	RefusedApart              // the checkpoint lies in memory, and not every rank can read it there
)

// refused is an error with its Refusal.
type refused struct {
	why  Refusal
	text string
}

func (r *refused) Error() string { return r.text }

func refusal(why Refusal, format string, args ...any) error {
	return &refused{why, fmt.Sprintf(format, args...)}
}

// whyRefused is the Refusal in an error.
func whyRefused(err error) Refusal {
	if r, ok := errors.AsType[*refused](err); ok {
		return r.why
	}
	return RefusedOther
}
