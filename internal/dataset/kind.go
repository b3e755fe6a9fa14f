package dataset

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"time"

	"github.com/headrace/headrace/sources"
)

// Kind is a kind of source as specs know it: what it can do, its part of a spec, and
// how it is opened. Each adapter declares one; cmd/headrace registers them.
type Kind struct {
	sources.Kind
	Example string   // of its part, on one line: "kafka: {brokers: [kafka-1:9092], topic: clicks}"
	Folders []string // fields of its part that a spec's file may give relative to itself
	// Connects: fields of its part that say how a broker is reached: addresses, TLS, login.
	// A spec that names a connection of the operator's has none of them.
	Connects []string

	// Address is how a person names a topic of it: "kafka://HOST:9092/TOPIC". "": it has
	// none. FromURL gives the lines of a part for such an address; what it names is
	// quoted as JSON.
	Address string
	FromURL func(hosts []string, topic string, query url.Values) []string

	// New is a part with its defaults.
	New func() Part
	// Open opens the dataset of a spec whose Source is New's. It does no more than it
	// must: a broker is connected to when something is asked for.
	Open func(spec *Spec, o Opening) (sources.Source, error)
}

// QuoteYAML is s as JSON text, which is YAML too.
func QuoteYAML(s string) string {
	text, err := json.Marshal(s)
	if err != nil { // of a string, never
		return `""`
	}
	return string(text)
}

// QuoteList is a list of such texts.
func QuoteList(all []string) string {
	quoted := make([]string, len(all))
	for i, s := range all {
		quoted[i] = QuoteYAML(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// Opening is what opening a source needs besides the spec.
type Opening struct {
	// AllowedRoots: what a spec names on this machine must lie in one of these folders.
	AllowedRoots []string
	// Known: segments that were numbered before, which keep their numbers, of all
	// partitions. A reader needs none.
	Known []sources.Segment
	// Cache is a folder of this process for what can be made again; "": there is none.
	Cache string
	// Chunks are those that were pushed; nil: this process has none.
	Chunks Chunks
	Logger *slog.Logger
}

// Part is a source's part of a spec: what stands under the name of its kind. It is a
// pointer to a struct with JSON tags; its JSON is stored, and must stay readable.
type Part interface {
	Kind() sources.Kind
	// Members are the names that may stand in the part, and what reads them.
	Members(r *Reader) []Member
	// Fill sets the defaults that depend on other fields.
	Fill()
	// Check says what is wrong with it, and with what else of the spec it does not go
	// with. What no input without an end goes with is checked already.
	Check(c *Check, s *Spec)
	// Compatible says whether a field of the part ("tls.ca") may change while the
	// dataset is read: the records and their positions stay the same. max_record may.
	Compatible(field string) bool
	// Traits is what others need to know of this very part. It is asked for often.
	Traits() Traits
}

// Traits is what others than the adapter need to know of a part.
type Traits struct {
	Live      bool          // the input has no end
	Refresh   time.Duration // Live: how often new partitions are looked for
	MaxRecord Size
	// Progress names whose progress the broker is told: a consumer group, a
	// subscription. "": nobody's. ProgressField is the field that says it.
	Progress, ProgressField string
	// AtSource is what a dataset has at its source that is removed with it, for people:
	// "the subscriptions headrace-a and headrace-a-keep". "": nothing.
	AtSource string
	Folders  []string // on this machine that must be allowed for it to be read
}

// Quick is implemented by parts that can be opened for a look in less time than for
// planning: files without hashing all of each.
type Quick interface{ Quick() Part }

// Placer is implemented by parts that can say of a record's offset where people find
// it: the line of a file.
type Placer interface {
	// Place is the segment's name with that place, or the name alone.
	Place(s *Spec, segment string, offset int64) string
}

// kinds are the registered ones, in the order in which errors list them.
var kinds []Kind

// Register makes kinds of sources known to specs. It is called at the start of a
// program, before anything is parsed; a kind that is known already stays.
func Register(all ...Kind) {
	for _, k := range all {
		if _, known := kindNamed(k.Name); !known {
			kinds = append(kinds, k)
		}
	}
}

// Kinds lists the registered ones.
func Kinds() []Kind { return kinds }

func kindNamed(name string) (Kind, bool) {
	for _, k := range kinds {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

func kindNames(between string) string {
	names := make([]string, len(kinds))
	for i, k := range kinds {
		names[i] = k.Name
	}
	return strings.Join(names, between)
}

// Kind is what the spec's source can do.
func (s *Spec) Kind() sources.Kind {
	if s.Source == nil {
		return sources.Kind{}
	}
	k := s.Source.Kind()
	if s.Decode.Columnar() && k.Rows.Max > 0 {
		k.Unit, k.Sizes = sources.Records, k.Rows
	}
	return k
}

// Open opens the dataset's source.
func (s *Spec) Open(o Opening) (sources.Source, error) {
	k, ok := kindNamed(s.Kind().Name)
	if !ok {
		return nil, fmt.Errorf("dataset %s: it names no source that this version reads; it reads %s", s.Name, kindNames(" and "))
	}
	return k.Open(s, o)
}

// ForALook is the spec as it is opened to look at records, not to plan them.
func (s *Spec) ForALook() *Spec {
	q, ok := s.Source.(Quick)
	if !ok {
		return s
	}
	look := *s
	look.Source = q.Quick()
	return &look
}

// Folders are those on this machine that the spec's source reads.
func (s *Spec) Folders() []string {
	if s.Source == nil {
		return nil
	}
	return s.Source.Traits().Folders
}

// Place is the segment's name with the place of an offset in it, as people find it
// (day_0.tsv:17), or the name alone.
func (s *Spec) Place(segment string, offset int64) string {
	if p, ok := s.Source.(Placer); ok {
		return p.Place(s, segment, offset)
	}
	return segment
}
