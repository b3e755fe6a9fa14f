package report

import (
	"errors"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
)

// Group is what a plain consumer group did with the same records at the same time, counted by the same
// rules from its own trainers' journals. No repeat in it is explained.
type Group struct {
	Title       string   `json:"title"` // title of its column
	About       string   `json:"about"` // what it is, with its settings
	Once        int      `json:"applied_once"`
	Twice       int      `json:"applied_twice"` // or more often
	Never       int      `json:"never"`
	Repeats     int      `json:"repeats"`  // how often records were applied, after the first time
	InDoubt     int      `json:"in_doubt"` // rows in a batch that was begun and not finished
	Foreign     int      `json:"foreign"`
	Kills       []Killed `json:"kills"`
	Freshness   `json:"freshness"`
	WorkerShare map[string]float64 `json:"worker_share"`
	CPU         float64            `json:"cpu"` // share of all cores; set by the demo
}

func computeGroup(truth *clicklog.Truth, journals []*Journal, kills []Kill, sent []int64) (*Group, error) {
	if len(journals) == 0 {
		return nil, errors.New("there is no journal of the consumer group: none of its trainers has started")
	}
	if err := tornOnlyIfKilled(journals, kills); err != nil {
		return nil, err
	}
	c := count(truth.Records, journals, nil)
	g := &Group{Once: c.Once, Twice: c.Twice, Never: c.Never, InDoubt: c.InDoubt, Foreign: c.Foreign, Repeats: c.Repeats}
	g.Kills, _ = times(kills, journals)
	g.Freshness = freshness(sent, journals)
	g.WorkerShare = shares(journals)
	return g, nil
}
