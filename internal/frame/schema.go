package frame

import (
	"fmt"

	"github.com/headrace/headrace/internal/dataset"
)

// Schema is the columns of a stream as OPENED tells them.
type Schema struct {
	Columns []Column `json:"columns"`
}

// Column describes one column and, with Buffers, its buffers in a frame.
type Column struct {
	Name   string `json:"name"`
	DType  string `json:"dtype"`  // bool int32 int64 float32 float64 string bytes
	Shape  []int  `json:"shape"`  // per row: [] a scalar, [13] a packed vector
	Layout string `json:"layout"` // fixed | ragged
	Mask   bool   `json:"mask"`
}

const (
	layoutFixed  = "fixed"
	layoutRagged = "ragged"
)

var dtypeNames = [...]string{
	dataset.Bool: "bool", dataset.Int32: "int32", dataset.Int64: "int64", dataset.Float32: "float32",
	dataset.Float64: "float64", dataset.String: "string", dataset.Bytes: "bytes",
}

// elementSize is in bytes; 0 for string and bytes.
var elementSize = [...]int{
	dataset.Bool: 1, dataset.Int32: 4, dataset.Int64: 8, dataset.Float32: 4, dataset.Float64: 8,
	dataset.String: 0, dataset.Bytes: 0,
}

// SchemaOf gives the wire's form of s.
func SchemaOf(s *dataset.Schema) Schema {
	w := Schema{Columns: make([]Column, 0, len(s.Fields))}
	for _, f := range s.Fields {
		c := Column{Name: f.Name, DType: dtypeNames[f.DType], Shape: f.Shape, Layout: layoutFixed, Mask: f.Mask}
		if c.Shape == nil {
			c.Shape = []int{}
		}
		if f.Ragged {
			c.Layout = layoutRagged
		}
		w.Columns = append(w.Columns, c)
	}
	return w
}

// Fields is the inverse of SchemaOf, for clients. It checks the schema that was sent.
func (s Schema) Fields() ([]dataset.Field, error) {
	fields := make([]dataset.Field, 0, len(s.Columns))
	for _, c := range s.Columns {
		f := dataset.Field{Name: c.Name, Shape: c.Shape, Mask: c.Mask, Ragged: c.Layout == layoutRagged}
		for d, name := range dtypeNames {
			if name != "" && name == c.DType {
				f.DType = dataset.DType(d)
			}
		}
		if f.DType == 0 {
			return nil, fmt.Errorf("%w: column %q has unknown dtype %q", ErrProtocol, c.Name, c.DType)
		}
		if !f.Ragged && c.Layout != layoutFixed {
			return nil, fmt.Errorf("%w: column %q has unknown layout %q", ErrProtocol, c.Name, c.Layout)
		}
		if _, ok := elements(c.Shape); !ok || (f.Ragged && len(c.Shape) > 0) {
			return nil, fmt.Errorf("%w: column %q has shape %v", ErrProtocol, c.Name, c.Shape)
		}
		fields = append(fields, f)
	}
	return fields, nil
}

// elements is the product of shape; false if it is negative or absurd.
func elements(shape []int) (int, bool) {
	n := 1
	for _, d := range shape {
		if d < 1 || d > MaxFrame || n > MaxFrame/d {
			return 0, false
		}
		n *= d
	}
	return n, true
}
