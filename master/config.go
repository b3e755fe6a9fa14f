package master

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/headrace/headrace/flashckpt/bucket"
	"github.com/headrace/headrace/internal/access"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

// Opener opens the source of a dataset for listing. known are the segments that
// were numbered before. Discovery closes the source.
type Opener func(ctx context.Context, spec *dataset.Spec, known []sources.Segment) (sources.Source, error)

// Config of a master. OpenSource, State and Listen are required.
type Config struct {
	Job     string
	Model   string // shared | replicated | private
	Version string // of this binary
	State   string // folder; made when it is not there

	Listen string // gRPC; port 0 is any free one
	HTTP   string // "" serves none
	TLS    link.TLS

	// Access says which callers are let in. Nil: those that know a token of the state folder.
	Access *access.Book

	SessionTTL time.Duration // 0: the default of 5 s
	LostAfter  time.Duration // shared: how long an agent may be silent; 0: SessionTTL

	OpenSource Opener
	// Check looks at a spec before it is applied; see serve.Config.
	Check func(context.Context, *dataset.Spec) error

	// Checkpoints opens those that lie in buckets; nil: none can be.
	Checkpoints *bucket.Places

	// OpenLanding opens the place of pushed records; nil: a folder in the state folder.
	OpenLanding func(context.Context) (storage.Store, error)

	// AllowRoots are the folders in which dead letters may be written.
	AllowRoots []string

	// AheadSegments is how many segments may be listed and not settled. Listing also stops
	// when aheadLeases of the largest lease are listed and not planned.
	AheadSegments int // default 256. The core asks for 64 at least.

	// HeadsEvery is how often a live input is asked where it ends.
	HeadsEvery time.Duration // 0: the default of the kind of source, or 1 s if it has none
	// HeadPatience is how long the end of a partition may lie below an end seen before. A
	// new leader of the partition may know less for a moment. After this time the records
	// in between count as lost.
	HeadPatience time.Duration // 0: the default of 20 s

	// FoldEvery is how often segments are folded that their source can do without.
	FoldEvery time.Duration // 0: the default of 1 min

	// SilentAfter is how long a source may leave a question unanswered before that is shown.
	SilentAfter time.Duration // 0: the default of 3 s

	Logger *slog.Logger
}

const (
	defaultAheadSegments = 256
	aheadLeases          = 16
	defaultHeadsEvery    = time.Second
	defaultHeadPatience  = 20 * time.Second
	listAtOnce           = 16 // at most so many segments per call of Source.Segments; few, so that each is durable soon
	storeFolder          = "store"
	stopGrace            = 2 * time.Second // for calls in flight at the end
)

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.OpenSource == nil:
		return c, errors.New("master: Config.OpenSource is missing")
	case c.State == "":
		return c, errors.New("master: Config.State is missing")
	case c.Listen == "":
		return c, errors.New("master: Config.Listen is missing")
	}
	if c.Access == nil {
		c.Access = &access.Book{State: c.State}
	}
	if c.AheadSegments <= 0 {
		c.AheadSegments = defaultAheadSegments
	}
	if c.HeadPatience <= 0 {
		c.HeadPatience = defaultHeadPatience
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}
