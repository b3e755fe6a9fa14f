package sources

// ValueKind is what the values of a Column are.
type ValueKind uint8

const (
	BoolValues  ValueKind = iota + 1 // 1 byte each, 0 or 1
	Int32Values                      // little-endian, as all numbers here
	Int64Values
	Float32Values
	Float64Values
	BytesValues // of any length
)

// Size is the bytes of one value; 0 for BytesValues.
func (k ValueKind) Size() int {
	return [...]int{BoolValues: 1, Int32Values: 4, Int64Values: 8, Float32Values: 4, Float64Values: 8, BytesValues: 0}[k]
}

// Column is one field of the rows of a Batch, where a source's records are rows of
// columns (Parquet) and not bytes. A slot is a place for a value: a row has one, or of a
// list any number.
type Column struct {
	Path string // as the spec writes it
	Kind ValueKind
	// TicksPerSecond: the values are times since 1970 in such ticks; PerDay: they are days;
	// 0: they are no times.
	TicksPerSecond int64

	Ends  []int32 // of a list: row i has the slots [Ends[i-1], Ends[i]); nil: one slot a row
	Valid []byte  // by slot, 0: null, which has no value; nil: all have one

	// Values of the slots that are not null, one behind the other. Of BytesValues value i
	// is Values[Offsets[i]:Offsets[i+1]].
	Values  []byte
	Offsets []int32
	// Dict is not nil: value i is entry Entries[i] of it instead.
	Dict    *Dictionary
	Entries []uint32

	List   bool // Ends counts, even when there is no row
	Absent bool // the file has no such field: every row is null, and nothing above is set
}

// PerDay is Column.TicksPerSecond of dates.
const PerDay = -1

// Dictionary is the distinct values of a piece of a column. It is never changed.
type Dictionary struct {
	Len     int
	Values  []byte
	Offsets []int32 // of BytesValues: Len+1
}

// Reset empties the column and keeps its memory.
func (c *Column) Reset() {
	c.Ends, c.Valid, c.Values, c.Offsets, c.Entries = c.Ends[:0], c.Valid[:0], c.Values[:0], c.Offsets[:0], c.Entries[:0]
	c.Dict, c.Absent = nil, false
}
