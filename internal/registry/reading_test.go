package registry

import (
	"context"
	"errors"
	"testing"

	"github.com/headrace/headrace/sources"
)

// topic is a source with a name for people, which may be compacted.
type topic struct {
	sources.Source
	err error
}

func (topic) PartitionName(p sources.PartitionID) string { return "clicks of " + string(p) }

func (s topic) Rewrites(_ context.Context, p sources.PartitionID) (bool, error) {
	return p == "compacted", s.err
}

func TestASourceWithSchemasAnswersReadersAsWithoutThem(t *testing.T) {
	away := errors.New("away")
	for name, wrap := range map[string]func(sources.Source) sources.Source{
		"of a registry": func(s sources.Source) sources.Source { return Reading(s, nil) },
		"given":         func(s sources.Source) sources.Source { return Giving(s, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			if got := sources.NameOf(wrap(topic{}), "3"); got != "clicks of 3" {
				t.Errorf("the partition is called %q", got)
			}
			for p, want := range map[sources.PartitionID]bool{"compacted": true, "other": false} {
				if got, err := wrap(topic{}).(sources.Rewriter).Rewrites(t.Context(), p); got != want || err != nil {
					t.Errorf("records of partition %s are compacted away: %v %v, want %v", p, got, err, want)
				}
			}
			if _, err := wrap(topic{err: away}).(sources.Rewriter).Rewrites(t.Context(), "other"); !errors.Is(err, away) {
				t.Errorf("the error is %v, want the source's", err)
			}
			// Of a source without these, the answers are those that readers assume.
			if got := sources.NameOf(wrap(&given{}), "3"); got != "3" {
				t.Errorf("the partition is called %q, want its identity", got)
			}
			if got, err := wrap(&given{}).(sources.Rewriter).Rewrites(t.Context(), "3"); got || err != nil {
				t.Errorf("records are compacted away: %v %v", got, err)
			}
		})
	}
}
