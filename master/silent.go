package master

import (
	"context"
	"errors"
	"time"

	"github.com/headrace/headrace/sources"
)

// asked notes whether sources answer (serve.Server). Call it before and after each request
// to a dataset's source.
type asked interface {
	SourceAsked(dataset uint32)
	SourceSilent(dataset uint32, reason string)
	SourceAnswered(dataset uint32)
}

// silentAgain is the longest time until a source that did not answer is asked again.
const silentAgain = 2 * time.Second

// ask asks a source and says whether it answered. A refusal is an answer too.
func ask(to asked, dataset uint32, question func() error) error {
	to.SourceAsked(dataset)
	err := question()
	if silent(err) {
		to.SourceSilent(dataset, err.Error())
	} else {
		to.SourceAnswered(dataset)
	}
	return err
}

// silent says whether an error means that the source did not answer.
func silent(err error) bool {
	_, temporary := errors.AsType[*sources.Temporary](err)
	return temporary || errors.Is(err, context.DeadlineExceeded)
}
