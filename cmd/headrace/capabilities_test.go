package main

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// A kind declares a capability if and only if its sources have it. Otherwise the master asks a source for what it cannot do, or never asks for what it can.
func TestKindsDeclareWhatTheirSourcesCanDo(t *testing.T) {
	variants := map[string][]string{ // fields on which the capabilities of a kind depend
		"files": {"end: never", "end: never, remember: 1h", "end: never, retain: 24h", "end: never, remember: 1h, retain: 24h"},
	}
	var kinds []string
	for _, k := range dataset.Kinds() {
		kinds = append(kinds, k.Name)
		says, has := map[string]bool{}, map[string]bool{}
		for _, more := range append([]string{""}, variants[k.Name]...) {
			spec := ofKind(t, k, more)
			src, err := k.Open(spec, dataset.Opening{AllowedRoots: []string{"/"}, Chunks: noChunks{}, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatalf("%s {%s}: %v", k.Name, more, err)
			}
			for name, d := range declared(spec.Source.Kind(), src) {
				if d.says && !d.can {
					t.Errorf("%s {%s} declares %s, and its source cannot do it", k.Name, more, name)
				}
				says[name], has[name] = says[name] || d.says, has[name] || d.can
			}
			if err := src.Close(); err != nil {
				t.Error(err)
			}
		}
		for name := range has {
			if has[name] && !says[name] {
				t.Errorf("%s can do %s, and no spec of it declares that", k.Name, name)
			}
		}
	}
	if !slices.Contains(kinds, "files") || len(kinds) < 5 {
		t.Fatalf("the kinds are %v", kinds)
	}
}

type declaration struct{ says, can bool }

// declared compares what a kind says with the interfaces of a source.
func declared(k sources.Kind, src sources.Source) map[string]declaration {
	all := map[string]declaration{}
	put := func(name string, says, can bool) { all[name] = declaration{says, can} }
	_, can := src.(sources.Committer)
	put("Commits", k.Commits, can)
	_, can = src.(sources.Retainer)
	put("Retains", k.Retains, can)
	_, can = src.(sources.Keeper)
	put("Foretells", k.Foretells, can)
	_, can = src.(sources.Poster)
	put("Posts", k.Posts, can)
	_, can = src.(sources.Dater)
	put("Dates", k.Dates, can)
	_, can = src.(sources.Forgetter)
	put("Forgets", k.Forgets, can)
	_, can = src.(sources.Deleter)
	put("Deletes", k.Deletes, can)
	return all
}

// noChunks is where no pushed record is.
type noChunks struct{}

func (noChunks) Stream(context.Context, string) (string, error) { return "", dataset.ErrNoChunk }
func (noChunks) Get(context.Context, string) ([]byte, error)    { return nil, dataset.ErrNoChunk }
func (noChunks) Has(context.Context, string) (bool, error)      { return false, nil }
func (noChunks) Release(context.Context, string) error          { return nil }
