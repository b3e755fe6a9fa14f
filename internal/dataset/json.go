package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// JSON is the normalised spec: defaults filled in, fields in a fixed order, so
// that equal specs have equal bytes. Sizes are numbers, durations text.
func (s *Spec) JSON() ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return nil, fmt.Errorf("dataset %s: %w", s.Name, err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// FromJSON reads what JSON wrote and checks it like Parse does. A field it does
// not know is refused: it would change what the records mean.
func FromJSON(text []byte) (*Spec, error) {
	spec := defaultSpec()
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(spec); err != nil {
		return nil, fmt.Errorf("a dataset's spec is not the JSON that this version writes: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("a dataset's spec has something after its JSON")
	}
	spec.fill()
	if errs := spec.validate("", nil); len(errs) > 0 {
		return nil, errs
	}
	return spec, nil
}
