package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/minio/crc64nvme"
)

var (
	// ErrDamaged: the bytes are not what a writer wrote (cut off, changed, or no
	// manifest at all). The checkpoint does not count.
	ErrDamaged = errors.New("damaged")
	// ErrNewer: a newer Headrace wrote it. It may be perfectly good.
	ErrNewer = errors.New("of a newer version")
	// ErrInvalid: well-formed, but it says what can not be.
	ErrInvalid = errors.New("invalid")
)

// Error says what is wrong with a manifest, a part or a cut. It wraps one of
// ErrDamaged, ErrNewer and ErrInvalid.
type Error struct {
	Kind   error
	Field  string // "cut.datasets[0].partitions[2].passes[0].low"; "" is the whole
	Reason string
}

func (e *Error) Error() string {
	if e.Field == "" {
		return fmt.Sprintf("%v: %s", e.Kind, e.Reason)
	}
	return fmt.Sprintf("%v: %s: %s", e.Kind, e.Field, e.Reason)
}

func (e *Error) Unwrap() error { return e.Kind }

func damaged(format string, args ...any) error {
	return &Error{Kind: ErrDamaged, Reason: fmt.Sprintf(format, args...)}
}

// A manifest ends in a checksum of everything before it, and is still one JSON
// object: X + `,"crc64nvme":"` + 16 hex digits + `"}` + "\n".
const (
	sumKey    = `,"crc64nvme":"`
	sumEnd    = "\"}\n"
	sumLength = len(sumKey) + 16 + len(sumEnd)
)

// Parse reads a manifest and validates it. Errors: *Error.
func Parse(b []byte) (*Manifest, error) {
	m := &Manifest{}
	if err := open(b, Format, m); err != nil {
		return nil, err
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// ParsePart reads a part and validates it. Errors: *Error.
func ParsePart(b []byte) (*Part, error) {
	p := &Part{}
	if err := open(b, PartFormat, p); err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// ParseCut reads a cut as it stands in a manifest, or travels alone. Errors: *Error.
func ParseCut(b []byte) (*Cut, error) {
	if err := short(b); err != nil {
		return nil, err
	}
	if err := cutVersion(b); err != nil {
		return nil, err
	}
	c := &Cut{}
	if err := decode(b, c); err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// open decodes, and checks format, version and checksum in the order in which
// they tell most.
func open(b []byte, format string, into any) error {
	if err := short(b); err != nil {
		return err
	}
	wrong := decode(b, into)
	if errors.Is(wrong, ErrDamaged) {
		return wrong
	}
	var head struct {
		Format  string          `json:"format"`
		Version int             `json:"version"`
		Cut     json.RawMessage `json:"cut"`
	}
	if err := decode(b, &head); err != nil {
		return err
	}
	if head.Format != format {
		return damaged("format is %.40q, not %q: another kind of file", head.Format, format)
	}
	if err := knows("manifest", head.Version); err != nil {
		return err
	}
	if err := checkSum(b); err != nil {
		return err
	}
	if format == Format {
		if err := cutVersion(head.Cut); err != nil {
			return err
		}
	}
	return wrong
}

func cutVersion(b []byte) error {
	var head struct {
		Version int `json:"version"`
	}
	if len(b) == 0 {
		return &Error{Kind: ErrInvalid, Field: "cut", Reason: "missing"}
	}
	if err := decode(b, &head); err != nil {
		return err
	}
	return knows("cut", head.Version)
}

func short(b []byte) error {
	switch {
	case len(b) > MaxBytes:
		return damaged("%d bytes, at most %d", len(b), MaxBytes)
	case len(bytes.TrimSpace(b)) == 0:
		return damaged("it is empty")
	}
	return nil
}

func knows(what string, version int) error {
	switch {
	case version > Version:
		return &Error{Kind: ErrNewer, Field: "version", Reason: fmt.Sprintf("the %s has version %d, this Headrace knows up to %d: use the Headrace that wrote it, or a newer one", what, version, Version)}
	case version < 1:
		return &Error{Kind: ErrInvalid, Field: "version", Reason: fmt.Sprintf("the %s has version %d, must be 1 or more", what, version)}
	}
	return nil
}

func checkSum(b []byte) error {
	at := len(b) - sumLength
	if at < 1 || string(b[at:at+len(sumKey)]) != sumKey || !bytes.HasSuffix(b, []byte(sumEnd)) {
		return damaged("it does not end with its checksum (%s…%s)", sumKey, strings.TrimSpace(sumEnd))
	}
	var want CRC64
	if err := want.UnmarshalText(b[at+len(sumKey) : len(b)-len(sumEnd)]); err != nil {
		return damaged("its checksum: %v", err)
	}
	if got := CRC64(crc64nvme.Checksum(b[:at])); got != want {
		return damaged("its checksum is %v, its text has %v", want, got)
	}
	return nil
}

// decode reads JSON; a number that is too large or a text where a number should
// be is told with its field.
func decode(b []byte, into any) error {
	err := json.Unmarshal(b, into)
	if err == nil {
		return nil
	}
	if e, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return &Error{Kind: ErrInvalid, Field: e.Field, Reason: fmt.Sprintf("a %s does not fit there", e.Value)}
	}
	if _, ok := errors.AsType[*json.SyntaxError](err); ok {
		return damaged("not JSON: %v", err)
	}
	return &Error{Kind: ErrInvalid, Reason: err.Error()}
}

// Encode is the manifest's bytes, checksum included. It refuses what Parse would.
func (m *Manifest) Encode() ([]byte, error) {
	m.Format, m.Version, m.Created = Format, Version, m.Created.UTC()
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return seal(m)
}

// Encode is the part's bytes, checksum included.
func (p *Part) Encode() ([]byte, error) {
	p.Format, p.Version = PartFormat, Version
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return seal(p)
}

// Encode is the cut as JSON, as it stands in a manifest.
func (c *Cut) Encode() ([]byte, error) {
	c.Version = Version
	if err := c.Validate(); err != nil {
		return nil, err
	}
	return json.Marshal(c)
}

func seal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-1]
	sum := crc64nvme.Checksum(b)
	b = append(b, sumKey...)
	b = append(b, hex(sum)...)
	b = append(b, sumEnd...)
	if len(b) > MaxBytes {
		return nil, damaged("%d bytes, at most %d", len(b), MaxBytes)
	}
	return b, nil
}
