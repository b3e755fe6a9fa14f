package memsource

import (
	"fmt"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// Kind declares all that a kind of source can declare.
var Kind = dataset.Kind{
	Kind: sources.Kind{
		Name: "memory", Unit: sources.Records, Keyed: true,
		Rolls: true, Commits: true, Retains: true, Foretells: true, HeadsEvery: 5 * time.Millisecond, SideBySide: 2,
		End: sources.End{Field: "end", Never: "never", Fixed: "latest"}, Inexact: "its progress is always kept",
		Sizes: sources.Sizes{Block: 64, Initial: 40, Min: 8, Max: 4000, MaxWhileLive: 2000},
	},
	Example: "memory: {log: clicks}",
	New:     func() dataset.Part { return &Spec{End: "latest"} },
	Open:    openSpec,
}

// Spec names a log of this process.
type Spec struct {
	Log string `json:"log"`
	End string `json:"end"` // latest | never
}

func (m *Spec) Kind() sources.Kind { return Kind.Kind }

func (m *Spec) Traits() dataset.Traits {
	return dataset.Traits{Live: m.End == "never", Refresh: 20 * time.Millisecond, MaxRecord: 1 << 20, Progress: "headrace",
		AtSource: "what the log " + m.Log + " keeps"}
}

func (m *Spec) Compatible(string) bool { return false }
func (m *Spec) Fill()                  {}

func (m *Spec) Members(r *dataset.Reader) []dataset.Member {
	return []dataset.Member{{Name: "log", Read: r.Text(&m.Log)}, {Name: "end", Read: r.Text(&m.End)}}
}

func (m *Spec) Check(c *dataset.Check, _ *dataset.Spec) {
	if m.Log == "" {
		c.Fail("memory.log", "", "must be given: it names the log", "")
	}
	c.Among("memory.end", m.End, "latest", "never")
}

func openSpec(s *dataset.Spec, o dataset.Opening) (sources.Source, error) {
	m, ok := s.Source.(*Spec)
	if !ok {
		return nil, fmt.Errorf("dataset %s: its spec has no `memory`", s.Name)
	}
	l := named(m.Log)
	if l == nil {
		return nil, fmt.Errorf("dataset %s: there is no log %s in this process", s.Name, m.Log)
	}
	return l.Open(m.End == "never", o.Known), nil
}
