package main

import (
	"context"
	"errors"
	"slices"
	"sync"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/sources"
)

// pushedLook is a source for a look at records that were pushed: the master lists them.
type pushedLook struct {
	sources.Source
	name   string
	master headracev1.LandingClient
	target link.Target
	close  func()

	mu      sync.Mutex
	page    map[sources.PartitionID][]sources.Segment // listed, and not handed out yet
	numbers map[sources.PartitionID]int
}

// pushedPage is how many chunks the master is asked for at a time.
const pushedPage = 256

// lookAtPushed opens a dataset with `landing:` to look at its records. The master knows the
// dataset by its name; the records are decoded as this spec says.
func (a *app) lookAtPushed(spec *dataset.Spec, o dataset.Opening) (sources.Source, error) {
	c, err := a.dial()
	if err != nil {
		return nil, err
	}
	p := &pushedLook{name: spec.Name, master: headracev1.NewLandingClient(c.conn), target: c.target, close: c.close,
		page: map[sources.PartitionID][]sources.Segment{}, numbers: map[sources.PartitionID]int{}}
	o.Chunks = &chunksToLook{chunksOfMaster{local: a.localChunks(), master: p.master}, p}
	if p.Source, err = a.openSource(spec, o); err != nil {
		c.close()
		return nil, err
	}
	return a.withSchemas(spec, p, o)
}

// PartitionName implements sources.Namer.
func (p *pushedLook) PartitionName(id sources.PartitionID) string {
	return sources.NameOf(p.Source, id)
}

// Partitions are numbered as their spec says. A chunk's partition is found by its number.
func (p *pushedLook) Partitions(ctx context.Context) ([]sources.PartitionID, error) {
	all, err := p.Source.Partitions(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, id := range all {
		p.numbers[id] = i
	}
	return all, err
}

// Segments are those that the master has. Nothing is locked while it is asked: one goroutine
// looks at a partition.
func (p *pushedLook) Segments(ctx context.Context, part sources.PartitionID, after int64, most int) ([]sources.Segment, error) {
	p.mu.Lock()
	number, some := p.numbers[part], p.page[part]
	p.mu.Unlock()
	some = slices.DeleteFunc(slices.Clone(some), func(g sources.Segment) bool { return g.ID <= after })
	if len(some) == 0 {
		reply, err := p.ask(ctx, number, after)
		if err != nil {
			return nil, err
		}
		for _, v := range reply.Chunks {
			_, key, err := chunk.ParseLocator(v.Locator)
			if err != nil {
				return nil, err
			}
			some = append(some, sources.Segment{ID: v.Number, Start: v.Start, End: v.End, Name: key.Name(), Locator: []byte(v.Locator)})
		}
	}
	most = min(most, len(some))
	p.mu.Lock()
	defer p.mu.Unlock()
	p.page[part] = some[most:]
	return some[:most], nil
}

func (p *pushedLook) ask(ctx context.Context, partition int, after int64) (*headracev1.ChunksReply, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := p.master.Chunks(ctx, &headracev1.ChunksRequest{Dataset: p.name, Partition: uint32(partition), After: after, Max: pushedPage})
	return reply, advice.FromMaster(err, p.target)
}

func (p *pushedLook) Close() error {
	defer p.close()
	return p.Source.Close()
}

// chunksToLook are chunksOfMaster for a command, which asks the master for the stream too.
type chunksToLook struct {
	chunksOfMaster
	of *pushedLook
}

func (c *chunksToLook) Stream(ctx context.Context, _ string) (string, error) {
	reply, err := c.of.ask(ctx, 0, -1)
	if err != nil {
		return "", err
	}
	if reply.Stream == "" {
		return "", errors.New("the master does not name the stream of pushed records")
	}
	return reply.Stream, nil
}
