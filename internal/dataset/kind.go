package dataset

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

// Kind is a kind of source: what it can do, its part of a spec, and how to open it. Each
// adapter declares one, and cmd/headrace registers them.
type Kind struct {
	sources.Kind
	Example string   // of its part, on one line: "kafka: {brokers: [kafka-1:9092], topic: clicks}"
	Folders []string // fields whose folder may be relative to the file of the spec
	// Connects names the fields that say how to reach a broker: addresses, TLS, login. A spec
	// that names a connection of the operator's must not have them.
	Connects []string

	// Address is the form in which a person names a topic: "kafka://HOST:9092/TOPIC"; "": there
	// is none. FromURL returns the lines of the spec's part for such an address, with its
	// values quoted as JSON.
	Address string
	FromURL func(hosts []string, topic string, query url.Values) []string

	// New makes a part with its defaults.
	New func() Part
	// Open opens the source of a spec whose part was made by New. It does not connect to a
	// broker: the first request does.
	Open func(spec *Spec, o Opening) (sources.Source, error)
}

// QuoteYAML returns s as JSON text, which is valid YAML.
func QuoteYAML(s string) string {
	text, err := json.Marshal(s)
	if err != nil { // of a string, never
		return `""`
	}
	return string(text)
}

// QuoteList returns a YAML list of quoted texts.
func QuoteList(all []string) string {
	quoted := make([]string, len(all))
	for i, s := range all {
		quoted[i] = QuoteYAML(s)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// Opening has what Open needs besides the spec.
type Opening struct {
	// AllowedRoots are the folders of this machine in which files that a spec names must lie.
	AllowedRoots []string
	// Known has the segments of all partitions that were numbered before. They keep their
	// numbers. A source that is opened only for reading needs none.
	Known []sources.Segment
	// Cache is a folder for files that can be made again; "": there is none.
	Cache string
	// Objects opens object storage as the operator allows it; nil: this process has none.
	Objects ObjectsOpener
	// Chunks gives pushed records; nil: this process has none.
	Chunks Chunks
	Logger *slog.Logger
}

// ObjectsOpener opens s3://bucket/prefix with a connection of the operator's. Without one
// the URL must lie in an allowed root.
type ObjectsOpener func(connection, url string, allowedRoots []string) (storage.Objects, error)

// Part is a source's part of a spec, under the name of its kind. It is a pointer to a struct
// with JSON tags. Its JSON is stored, so newer versions must still read it.
type Part interface {
	Kind() sources.Kind
	// Members lists the fields of the part, each with the function that reads it.
	Members(r *Reader) []Member
	// Fill sets the defaults that depend on other fields.
	Fill()
	// Check reports what is wrong with the part, and which other fields of the spec do not
	// go with it. Fields that no live input may have are checked already.
	Check(c *Check, s *Spec)
	// Compatible says whether a field of the part ("tls.ca") may change while the dataset is
	// read: its records and their positions must stay the same. max_record always may.
	Compatible(field string) bool
	// Traits returns what others need to know of this part. It is called often.
	Traits() Traits
}

// Traits is what code outside the adapter needs to know of a part.
type Traits struct {
	Live      bool          // the input has no end
	Refresh   time.Duration // Live: how often new partitions are looked for
	MaxRecord Size
	// Progress is the consumer group or subscription that shows our progress; "": none.
	Progress string
	// ProgressField is the field that names it; "": the spec leaves it out, and the kind chooses
	// a name.
	ProgressField string
	// AtSource says, for people, what the dataset has at its source and is removed with it:
	// "subscriptions clicks and clicks-retain of topic". "": nothing.
	AtSource string
	// DeletesAfter: records that were read are deleted at the source, after this time at the
	// earliest; 0: never.
	DeletesAfter time.Duration
	Folders      []string // on this machine that must be allowed for it to be read
}

// Quick is implemented by parts that can be opened faster for a look than for planning. Files
// are then not hashed as a whole.
type Quick interface{ Quick() Part }

// Placer is implemented by parts that can turn an offset into a place that people find: the
// line of a file.
type Placer interface {
	// Place returns the segment's name with that place, or the name alone.
	Place(s *Spec, segment string, offset int64) string
}

// kinds has the registered kinds, in the order in which errors list them.
var kinds []Kind

// Register adds kinds of sources, so that specs may use them. Call it at the start of a
// program, before any spec is parsed. A kind that is registered already stays.
func Register(all ...Kind) {
	for _, k := range all {
		if _, known := kindNamed(k.Name); !known {
			kinds = append(kinds, k)
		}
	}
}

// Kinds returns the registered kinds.
func Kinds() []Kind { return kinds }

func kindNamed(name string) (Kind, bool) {
	for _, k := range kinds {
		if k.Name == name {
			return k, true
		}
	}
	return Kind{}, false
}

// kindNames joins the names of those registered kinds that can do something.
func kindNames(between string, can func(Kind) bool) string {
	var names []string
	for _, k := range kinds {
		if can(k) {
			names = append(names, k.Name)
		}
	}
	return strings.Join(names, between)
}

func anyKind(Kind) bool { return true }

// Kind returns the kind of the spec's source.
func (s *Spec) Kind() sources.Kind {
	if s.Source == nil {
		return sources.Kind{}
	}
	k := s.Source.Kind()
	if s.Decode.CountsRows() && k.Rows.Max > 0 {
		k.Unit, k.Sizes = sources.Records, k.Rows
	}
	return k
}

// Open opens the source of an input (Inputs).
func (s *Spec) Open(o Opening) (sources.Source, error) {
	if s.Backfill != nil {
		return nil, fmt.Errorf("dataset %s has two inputs: open each of them", s.Name)
	}
	k, ok := kindNamed(s.Kind().Name)
	if !ok {
		return nil, fmt.Errorf("dataset %s: it names no source that this version reads; it reads %s", s.Name, kindNames(" and ", anyKind))
	}
	return k.Open(s, o)
}

// ForALook returns the spec to open for a look at records, not for planning.
func (s *Spec) ForALook() *Spec {
	q, ok := s.Source.(Quick)
	if !ok {
		return s
	}
	look := *s
	look.Source = q.Quick()
	return &look
}

// Folders returns the folders of this machine that the spec's source reads.
func (s *Spec) Folders() []string {
	if s.Source == nil {
		return nil
	}
	if s.Backfill != nil && s.Backfill.Source != nil {
		return slices.Concat(s.Source.Traits().Folders, s.Backfill.Source.Traits().Folders)
	}
	return s.Source.Traits().Folders
}

// Place returns the segment's name with the place of an offset in it (day_0.tsv:17), or the
// name alone.
func (s *Spec) Place(segment string, offset int64) string {
	if p, ok := s.Source.(Placer); ok {
		return p.Place(s, segment, offset)
	}
	return segment
}

// Deleter is implemented by parts whose source deletes what was read (Traits.DeletesAfter).
type Deleter interface {
	// DeletesOf says whether it may delete what another part reads.
	DeletesOf(other Part) bool
	// DeletesBy names the field that has it delete: "files.retain".
	DeletesBy() string
}

// DeletesOf says whether an input of the spec may delete what an input of another one reads.
// If so, field names the field that has it delete.
func (s *Spec) DeletesOf(other *Spec) (field string, ok bool) {
	for _, in := range s.Inputs() {
		d, ok := in.Source.(Deleter)
		if ok && slices.ContainsFunc(other.Inputs(), func(o *Spec) bool { return o.Source != nil && d.DeletesOf(o.Source) }) {
			return d.DeletesBy(), true
		}
	}
	return "", false
}
