package dataset

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
