package dataset

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// Change is one field that differs between two versions of a spec. Old or New
// is "" where the field is not set.
type Change struct {
	Field    string // "lease.target", "decode.columns.label.dtype"
	Old, New string // as JSON
	// Compatible: a dataset that is being read may take it. The records, their
	// positions, their order and their values stay what they are.
	Compatible bool
	// Repairs: a dataset that has failed may go on because of it. Such fields say what is
	// done with records that stopped it.
	Repairs bool
}

func (c Change) String() string {
	return fmt.Sprintf("%s: %s -> %s", c.Field, orElse(c.Old, "(not set)"), orElse(c.New, "(not set)"))
}

// Repaired names the changes that let a failed dataset with the old spec go on. If another
// version wrote the old spec, it names none: the user decides.
func Repaired(yaml string, new *Spec) (changes []string) {
	old, err := Parse([]byte(yaml), "")
	if err != nil {
		return nil
	}
	for _, c := range Diff(old, new) {
		if c.Repairs {
			changes = append(changes, c.String())
		}
	}
	return changes
}

// Diff lists what changes from old to new, in order of field. Columns are
// compared by name. No change: nil.
func Diff(old, new *Spec) []Change {
	was, is := Leaves(old), Leaves(new)
	var all []Change
	for field, v := range was {
		if is[field] != v {
			all = append(all, Change{Field: field, Old: v, New: is[field]})
		}
	}
	for field, v := range is {
		if _, both := was[field]; !both {
			all = append(all, Change{Field: field, New: v})
		}
	}
	for i := range all {
		all[i].Compatible = compatible(all[i].Field, old, new)
		all[i].Repairs = all[i].Compatible && repairs(all[i].Field)
	}
	slices.SortFunc(all, func(a, b Change) int { return strings.Compare(a.Field, b.Field) })
	return all
}

func compatible(field string, old, new *Spec) bool {
	switch {
	case strings.HasPrefix(field, "lease."), strings.HasPrefix(field, "guard."):
		return true
	case field == "passes": // one more reading of the same; fewer may have been read already
		return new.Passes > old.Passes
	case repairs(field):
		return true
	case field == "dead_letter", strings.HasPrefix(field, "dead_letter."): // of bad records from now on
		return true
	case field == "catch_up", strings.HasPrefix(field, "catch_up."): // of what is granted from now on
		return true
	case field == "resume": // of processes that come from now on
		return true
	}
	if new.Source == nil || old.Source == nil || old.Source.Kind().Name != new.Source.Kind().Name {
		return false
	}
	if old, ok := strings.CutPrefix(field, "backfill."); ok {
		b := new.Backfill
		if b == nil || b.Source == nil {
			return false
		}
		own, ok := strings.CutPrefix(old, b.Source.Kind().Name+".")
		return ok && b.Source.Compatible(own)
	}
	own, ok := strings.CutPrefix(field, new.Source.Kind().Name+".")
	return ok && new.Source.Compatible(own)
}

func repairs(field string) bool {
	return field == "decode.on_error" || field == "on_crash" || field == "max_bad" || field == "on_loss" || strings.HasSuffix(field, ".max_record")
}

// Leaves gives the leaves of a spec: "kafka.topics" and its value as JSON.
func Leaves(s *Spec) map[string]string {
	all := map[string]string{}
	rest := *s
	rest.Decode.Columns = nil
	put(all, "", rest)
	names := make([]string, len(s.Decode.Columns))
	for i, c := range s.Decode.Columns {
		names[i] = c.Name
		put(all, "decode.columns."+c.Name, c)
	}
	order, _ := json.Marshal(names)
	all["decode.columns"] = string(order)
	return all
}

// put marshals v and lays its leaves under a path. Lists are leaves.
func put(all map[string]string, path string, v any) {
	text, err := json.Marshal(v)
	if err != nil {
		return // nothing in a Spec fails to marshal
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil || members == nil {
		if string(text) != "null" {
			all[path] = string(text)
		}
		return
	}
	for name, value := range members {
		put(all, join(path, name), value)
	}
}
