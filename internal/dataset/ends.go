package dataset

import (
	"strings"

	"github.com/headrace/headrace/sources"
)

// These name a kind's fields in errors and hints, in the words of its spec.

// endField is the field that says where input of a kind ends: "kafka.end".
func endField(k sources.Kind) string { return k.Name + "." + k.End.Field }

// endless is what makes input of a kind live: "kafka.end: never", or the kind alone if all its
// input is.
func endless(k sources.Kind) string {
	if k.End.Always || k.End.Field == "" {
		return k.Name
	}
	return endField(k) + ": " + k.End.Never
}

// toEnd is what gives live input of a kind an end; "": nothing does.
func toEnd(k sources.Kind) string {
	switch {
	case k.End.Always || k.End.Field == "":
		return ""
	case k.End.Fixed == "":
		return "remove " + endField(k)
	}
	return "set " + endField(k) + ": " + k.End.Fixed
}

// toGoOn is what makes input of a kind live; "": it is, or it cannot be.
func toGoOn(k sources.Kind) string {
	if k.End.Always || k.End.Field == "" {
		return ""
	}
	return "set " + endless(k)
}

// either joins the hints that there are.
func either(hints ...string) string {
	var some []string
	for _, h := range hints {
		if h != "" {
			some = append(some, h)
		}
	}
	return strings.Join(some, ", or ")
}
