package dataset

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// JSON is the normalised spec: defaults filled in, fields in a fixed order, so
// that equal specs have equal bytes. Sizes are numbers, durations text.
func (s *Spec) JSON() ([]byte, error) {
	text, err := marshal(s)
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", s.Name, err)
	}
	return text, nil
}

// MarshalJSON writes the source's part after the name, under the name of its kind.
func (s Spec) MarshalJSON() ([]byte, error) {
	type plain Spec
	rest, err := marshal(plain(s))
	if err != nil || s.Source == nil {
		return rest, err
	}
	name, err := marshal(s.Name)
	if err != nil {
		return nil, err
	}
	part, err := marshal(s.Source)
	if err != nil {
		return nil, err
	}
	until := len(`{"name":`) + len(name)
	return slices.Concat(rest[:until], []byte(`,"`+s.Source.Kind().Name+`":`), part, rest[until:]), nil
}

func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// UnmarshalJSON reads what MarshalJSON wrote. Fields that it does not know are errors.
func (s *Spec) UnmarshalJSON(text []byte) error {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(text, &members); err != nil {
		return err
	}
	for _, k := range kinds {
		part, ok := members[k.Name]
		if !ok {
			continue
		}
		if delete(members, k.Name); s.Source != nil {
			return fmt.Errorf("it names two sources, %s and %s", s.Source.Kind().Name, k.Name)
		}
		s.Source = k.New()
		if err := strictly(part, s.Source); err != nil {
			return fmt.Errorf("%s: %w", k.Name, err)
		}
	}
	rest, err := marshal(members)
	if err != nil {
		return err
	}
	type plain Spec
	err = strictly(rest, (*plain)(s))
	if err != nil && s.Source == nil {
		return fmt.Errorf("%w; the sources that this version reads are %s", err, kindNames(", ", anyKind))
	}
	return err
}

func strictly(text []byte, into any) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	return dec.Decode(into)
}

// FromJSON reads what JSON wrote and checks it like Parse does. A field it does
// not know is refused: it would change what the records mean.
func FromJSON(text []byte) (*Spec, error) {
	spec := defaultSpec()
	dec := json.NewDecoder(bytes.NewReader(text))
	if err := dec.Decode(spec); err != nil {
		return nil, fmt.Errorf("a dataset's spec is not the JSON that this version writes: %w", err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("a dataset's spec has something after its JSON")
	}
	spec.fill()
	if errs := spec.validate("", nil, ""); len(errs) > 0 {
		return nil, errs
	}
	return spec, nil
}
