package dataset

import (
	"encoding/json"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// CatchUp says how a dataset goes on when there is more to read than workers can: which of
// its inputs is granted first, and what is left out. It is written as a word, or as a mapping
// with order and drop_older_than.
type CatchUp struct {
	Order         string   // with a backfill: in_order (default) | newest_first
	DropOlderThan Duration // records of the live source that are older are excluded; 0: none
}

// The words of catch_up: which input is granted first.
const (
	CatchUpInOrder     = "in_order"     // the backfill, then the live source
	CatchUpNewestFirst = "newest_first" // the live source; the backfill fills what time is left
)

// leastAge: the master asks for the age of records once a second at most.
const leastAge = Duration(time.Second)

func (r *Reader) catchUp(n *yaml.Node, path string, c *CatchUp) {
	if n.Kind == yaml.ScalarNode && !isNull(n) { // catch_up: newest_first
		r.Text(&c.Order)(n, path)
		return
	}
	r.Mapping(n, path, []Member{
		{"order", r.Text(&c.Order)},
		{"drop_older_than", Parsed(r, &c.DropOlderThan, ParseDuration)},
	})
}

// catchUp checks the field.
func (c *Check) catchUp(s *Spec) {
	u, at := &s.CatchUp, "catch_up"
	if u.DropOlderThan != 0 {
		at = "catch_up.order"
	}
	switch {
	case u.Order == "drop_older_than":
		c.Fail(at, u.Order, "needs an age", "as in catch_up: {drop_older_than: 6h}")
	case u.Order != "" && c.Among(at, u.Order, CatchUpInOrder, CatchUpNewestFirst) && s.Backfill == nil:
		c.Fail(at, u.Order, "needs a backfill", "remove it, or say in backfill: where the history is")
	}
	if u.DropOlderThan == 0 || s.Source == nil {
		return
	}
	const field = "catch_up.drop_older_than"
	age := u.DropOlderThan.String()
	switch kind := s.Source.Kind(); {
	case u.DropOlderThan < leastAge:
		c.Fail(field, age, "is too short: nothing would be left to read", "at least "+leastAge.String())
	case !kind.Dates:
		c.Fail(field, age, "does not go with "+kind.Name+", which does not find records by their time", hintOfDates())
	case !s.Live():
		later := ""
		if kind.Start != "" {
			later = "begin later with " + kind.Name + "." + kind.Start
		}
		c.Fail(field, age, "is for a source without an end", either(toGoOn(kind), later))
	}
}

// hintOfDates names the inputs that catch_up.drop_older_than goes with.
func hintOfDates() string {
	var all []string
	for _, k := range kinds {
		if k.Dates {
			all = append(all, endless(k.Kind))
		}
	}
	if len(all) == 0 {
		return "remove it"
	}
	return "it is for live input: " + strings.Join(all, ", ")
}

// MarshalJSON writes a word where there is no more to say, as versions before
// drop_older_than did.
func (c CatchUp) MarshalJSON() ([]byte, error) {
	if c.DropOlderThan == 0 {
		return json.Marshal(c.Order)
	}
	members := map[string]any{"drop_older_than": c.DropOlderThan}
	if c.Order != "" {
		members["order"] = c.Order
	}
	return json.Marshal(members)
}

// UnmarshalJSON reads what MarshalJSON wrote. Fields that it does not know are errors.
func (c *CatchUp) UnmarshalJSON(text []byte) error {
	if len(text) > 0 && text[0] == '"' {
		return json.Unmarshal(text, &c.Order)
	}
	var members struct {
		Order         string   `json:"order"`
		DropOlderThan Duration `json:"drop_older_than"`
	}
	if err := strictly(text, &members); err != nil {
		return err
	}
	*c = CatchUp(members)
	return nil
}
