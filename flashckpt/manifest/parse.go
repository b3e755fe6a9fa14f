package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/minio/crc64nvme"
)

// What is wrong with a manifest, a part or a cut: the checkpoint does not count. The
// errors are those of package cut, and so is their type, *cut.Error.
var (
	ErrDamaged = cut.ErrDamaged // cut off, changed, or no manifest at all
	ErrNewer   = cut.ErrNewer   // a newer Headrace wrote it; it may be perfectly good
	ErrInvalid = cut.ErrInvalid // well-formed, but it says what cannot be true
)

func damaged(format string, args ...any) error {
	return &cut.Error{Kind: ErrDamaged, Reason: fmt.Sprintf(format, args...)}
}

// A manifest ends in a checksum of everything before it, and is still one JSON
// object: X + `,"crc64nvme":"` + 16 hex digits + `"}` + "\n".
const (
	sumKey    = `,"crc64nvme":"`
	sumEnd    = "\"}\n"
	sumLength = len(sumKey) + 16 + len(sumEnd)
)

// Parse reads a manifest and validates it. Errors: *cut.Error.
func Parse(b []byte) (*Manifest, error) {
	m := &Manifest{Cut: cut.Cut{Rank: cut.Group}}
	if err := open(b, Format, m, func() bool { return m.Format == Format && m.Version == Version && m.Cut.Version == cut.Version }); err != nil {
		return nil, err
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}

// ParsePart reads a part and validates it. Errors: *cut.Error.
func ParsePart(b []byte) (*Part, error) {
	p := &Part{}
	if err := open(b, PartFormat, p, func() bool { return p.Format == PartFormat && p.Version == Version }); err != nil {
		return nil, err
	}
	if err := p.Validate(); err != nil {
		return nil, err
	}
	return p, nil
}

// open decodes b, and checks format, version and checksum in the order that gives the most
// useful error. ours says whether what was decoded has our format and versions.
func open(b []byte, format string, into any, ours func() bool) error {
	if err := short(b); err != nil {
		return err
	}
	wrong := decode(b, into)
	switch {
	case errors.Is(wrong, ErrDamaged):
		return wrong
	case wrong == nil && ours():
		return checkSum(b)
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
	if err := knows(head.Version); err != nil {
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
	if len(b) == 0 {
		return &cut.Error{Kind: ErrInvalid, Field: "cut", Reason: "missing"}
	}
	return cut.CheckVersion(b)
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

func knows(version int) error {
	switch {
	case version > Version:
		return &cut.Error{Kind: ErrNewer, Field: "version", Reason: fmt.Sprintf("the manifest has version %d, this Headrace knows up to %d: use the Headrace that wrote it, or a newer one", version, Version)}
	case version < 1:
		return &cut.Error{Kind: ErrInvalid, Field: "version", Reason: fmt.Sprintf("the manifest has version %d, must be 1 or more", version)}
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

// decode reads JSON. A number that is too large, or a text where a number should
// be, is told with its field.
func decode(b []byte, into any) error {
	if err := json.Unmarshal(b, into); err != nil {
		return cut.WrongJSON(err)
	}
	return nil
}

// Encode is the manifest's bytes, checksum included. It refuses what Parse would.
func (m *Manifest) Encode() ([]byte, error) {
	m.Format, m.Version, m.Created = Format, Version, m.Created.UTC()
	m.Cut.Version = cut.Version
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

func seal(v any) ([]byte, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	b = b[:len(b)-1]
	sum := crc64nvme.Checksum(b)
	b = append(b, sumKey...)
	b = append(b, CRC64(sum).String()...)
	b = append(b, sumEnd...)
	if len(b) > MaxBytes {
		return nil, damaged("%d bytes, at most %d", len(b), MaxBytes)
	}
	return b, nil
}
