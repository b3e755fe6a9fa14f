package master

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// progress is a ledger of two datasets, of which one names a group.
type progress struct{ marks []sources.Mark }

func (p *progress) Datasets(context.Context) ([]serve.Dataset, error) {
	return []serve.Dataset{
		{ID: 1, Name: "files", Spec: &dataset.Spec{Files: &dataset.FilesSpec{}}},
		{ID: 2, Name: "events", Spec: &dataset.Spec{Kafka: &dataset.KafkaSpec{Group: "g"}}},
	}, nil
}

func (p *progress) LowMarks(_ context.Context, id uint32) ([]sources.Mark, error) {
	if id != 2 {
		return nil, errors.New("nobody asked for it")
	}
	return p.marks, nil
}

// group is the broker's side.
type group struct {
	sources.Source
	got  []sources.Mark
	fail error
}

func (g *group) Close() error                               { return nil }
func (g *group) Hold(context.Context, []sources.Mark) error { return nil }
func (g *group) Commit(_ context.Context, m []sources.Mark) error {
	if g.fail == nil {
		g.got = append(g.got, m...)
	}
	return g.fail
}

func TestTheBrokerIsToldWhatIsNewAndAgainAfterAFailure(t *testing.T) {
	mark := func(p sources.PartitionID, at int64) sources.Mark {
		return sources.Mark{Partition: p, Position: sources.Position{Offset: at}}
	}
	ledger, broker := &progress{marks: []sources.Mark{mark("a", 5), mark("b", 7)}}, &group{}
	c := &commits{srv: ledger, log: slog.New(slog.DiscardHandler), every: commitEvery, said: map[said]told{},
		open: func(context.Context, *dataset.Spec, []sources.Segment) (sources.Source, error) { return broker, nil }}
	round := func(want int) {
		t.Helper()
		broker.got = nil
		if c.round(t.Context()); len(broker.got) != want {
			t.Errorf("told %v, want %d marks", broker.got, want)
		}
	}
	round(2)
	round(0)
	ledger.marks[1] = mark("b", 9)
	broker.fail = errors.New("not now")
	round(0)
	broker.fail = nil
	round(1)
	if broker.got[0] != mark("b", 9) {
		t.Errorf("told %v", broker.got)
	}
	old := c.said[said{2, "a"}]
	c.said[said{2, "a"}] = told{old.at, old.when.Add(-commitAgain)}
	round(1) // so that the broker does not forget it

	stopped, cancel := context.WithCancel(t.Context())
	cancel()
	ledger.marks[0] = mark("a", 6)
	broker.got = nil
	if c.run(stopped); len(broker.got) != 1 {
		t.Errorf("at the end it told %v", broker.got)
	}
}
