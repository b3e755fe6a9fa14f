package master

import (
	"slices"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc/serve"
	"github.com/headrace/headrace/sources"
)

// A dataset with a backfill has two inputs. Each is listed by itself, and asks its own
// source. Only the live one commits to a broker, retains records and is guarded.

// input is one input of a dataset, as a dataset with one source and its partitions.
type input struct {
	serve.Dataset
	no    int  // among the inputs
	alone bool // the dataset has no other one
}

func inputsOf(ds *serve.Dataset) []input {
	specs := ds.Spec.Inputs()
	if len(specs) == 1 {
		return []input{{*ds, 0, true}}
	}
	all := make([]input, len(specs))
	for i, spec := range specs {
		in := input{*ds, i, false}
		in.Spec, in.Partitions = spec, nil
		for _, p := range ds.Partitions {
			if ds.Spec.IsBackfill(string(p.Source)) == (i == 0) {
				in.Partitions = append(in.Partitions, p)
			}
		}
		if !spec.Live() { // all its partitions are added in one call
			in.PartitionsKnown = len(in.Partitions) > 0
		}
		all[i] = in
	}
	return all
}

// liveInput returns the input that a broker has: the last one, after a backfill.
func liveInput(spec *dataset.Spec) *dataset.Spec {
	all := spec.Inputs()
	return all[len(all)-1]
}

// ofLive removes the elements that belong to partitions of the backfill.
func ofLive[T any](spec *dataset.Spec, all []T, identity func(*T) string) []T {
	if spec.Backfill == nil {
		return all
	}
	return slices.DeleteFunc(all, func(x T) bool { return spec.IsBackfill(identity(&x)) })
}

func ofMark(m *sources.Mark) string { return string(m.Partition) }

func ofNeed(n *serve.Need) string { return n.Source }
