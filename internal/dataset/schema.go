package dataset

import "fmt"

// DType is the element type of a column.
type DType uint8

const (
	Bool DType = iota + 1
	Int32
	Int64
	Float32
	Float64
	String
	Bytes
)

// Field is one column as decoders, frames and clients see it.
type Field struct {
	Name   string `json:"name"`
	DType  DType  `json:"dtype"`
	Shape  []int  `json:"shape"`  // per row: [] scalar, [13] packed
	Ragged bool   `json:"ragged"` // layout
	Mask   bool   `json:"mask"`
}

// Schema is the columns of a dataset in the order of its spec, each weights
// column right after its own.
type Schema struct {
	Fields []Field
}

// Names lists the columns in order.
func (s Schema) Names() []string {
	names := make([]string, len(s.Fields))
	for i, f := range s.Fields {
		names[i] = f.Name
	}
	return names
}

// Schema gives the columns that the spec makes of a record. It needs no data.
func (s *Spec) Schema() (Schema, error) {
	var out Schema
	for i := range s.Decode.Columns {
		fields, err := s.Decode.Columns[i].fields(s.Decode.Format)
		if err != nil {
			return Schema{}, fmt.Errorf("dataset %s: decode.columns[%d]: %w", s.Name, i, err)
		}
		out.Fields = append(out.Fields, fields...)
	}
	return out, nil
}

func (c *Column) fields(format string) ([]Field, error) {
	dtype, ok := ParseDType(c.DType)
	if !ok {
		return nil, fmt.Errorf("no such dtype: %q", c.DType)
	}
	if c.InRecord(format) {
		return []Field{c.binaryField(dtype)}, nil
	}
	paths, err := c.ExpandPaths(format)
	if err != nil {
		return nil, err
	}
	main := Field{Name: c.Name, DType: dtype, Shape: []int{}, Mask: c.Missing == "mask"}
	switch {
	case c.Paths != nil:
		main.Shape = []int{len(paths)}
	case len(c.Shape) > 0: // of a feature
		main.Shape = append(main.Shape, c.Shape...)
	default:
		main.Ragged = c.Split != "" || paths[0].Ragged()
	}
	if c.Weights == "" {
		return []Field{main}, nil
	}
	weights := Field{Name: WeightsName(c.Name), DType: Float32, Shape: []int{}, Ragged: true}
	return []Field{main, weights}, nil
}

// ExpandPaths gives where the column's values are, one or, for a matrix column,
// one per element.
func (c *Column) ExpandPaths(format string) ([]Path, error) {
	if c.Paths == nil {
		return ExpandPaths(format, []string{c.Path})
	}
	return ExpandPaths(format, c.Paths)
}
