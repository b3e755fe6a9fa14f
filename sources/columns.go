package sources

import (
	"encoding/binary"
	"sync/atomic"
)

// ValueKind is the type of a Column's values.
type ValueKind uint8

const (
	BoolValues  ValueKind = iota + 1 // 1 byte each, 0 or 1
	Int32Values                      // little-endian, as all numbers here
	Int64Values
	Uint64Values
	Float32Values
	Float64Values
	BytesValues // of any length
)

// Size returns the bytes of one value; 0 for BytesValues.
func (k ValueKind) Size() int {
	return [...]int{BoolValues: 1, Int32Values: 4, Int64Values: 8, Uint64Values: 8, Float32Values: 4, Float64Values: 8, BytesValues: 0}[k]
}

// Column is one field of the rows of a Batch, for sources whose records are rows of columns
// (Parquet) and not bytes. A slot is a place for a value. A row has one slot; in a list it
// has any number.
type Column struct {
	Path string // as the spec writes it
	Kind ValueKind
	// TicksPerSecond is set if the values are times: ticks since 1970. PerDay: they are days
	// since 1970. 0: they are not times.
	TicksPerSecond int64

	Ends  []int32 // in a list, row i has the slots [Ends[i-1], Ends[i]); nil: one slot a row
	Valid []byte  // one byte a slot: 0 is null, which has no value; 1 is a value; empty: no slot is null

	// Values has the values of the slots that are not null, one after another. With
	// BytesValues, value i is Values[Offsets[i]:Offsets[i+1]].
	Values  []byte
	Offsets []int32
	// If Dict is not nil, value i is its entry Entry(i) instead. Use sets it. The entries lie in one
	// of Entries and Short, and the other one is empty. Short takes half the memory; it may be
	// used if Dict has no more than ShortEntries.
	Dict    *Dictionary
	Entries []uint32
	Short   []uint16
	used    *Dictionary // the one that counts this column as a user

	List   bool // the column is a list, also if it has no row and Ends is empty
	Absent bool // the file has no such field: every row is null, and nothing above is set
}

// ShortEntries is how many entries a dictionary may have, so that 16 bits hold each of them.
const ShortEntries = 1 << 16

// Entry is the entry of Dict that is value i.
func (c *Column) Entry(i int) int {
	if len(c.Short) > 0 {
		return int(c.Short[i])
	}
	return int(c.Entries[i])
}

// PerDay is Column.TicksPerSecond for dates.
const PerDay = -1

// Dictionary has the distinct values of a piece of a column. It does not change as long as a
// Column has it.
type Dictionary struct {
	Len     int
	Values  []byte
	Offsets []int32 // only of BytesValues; Len+1 of them

	users atomic.Int32
	free  func(*Dictionary)
}

// Share starts counting the users of the dictionary: its maker, until it calls Release, and
// each column until it gets another one or Reset. When nobody uses it any more, free is called,
// and may give its memory to another dictionary. If a column is thrown away without Reset, free
// is never called and the garbage collector takes the memory. If a Column was copied, reset
// only one of the copies: each Reset counts one user less.
func (d *Dictionary) Share(free func(*Dictionary)) {
	d.free = free
	d.users.Store(1)
}

// Release ends one use of a shared dictionary: that of its maker, or that of a column.
func (d *Dictionary) Release() {
	if d.free != nil && d.users.Add(-1) == 0 {
		d.free(d)
	}
}

// Use sets the column's dictionary. nil: the column has none.
func (c *Column) Use(d *Dictionary) {
	if c.Dict = d; c.used == d {
		return
	}
	if d != nil {
		d.users.Add(1)
	}
	if c.used != nil {
		c.used.Release()
	}
	c.used = d
}

// Reset empties the column and keeps its memory.
func (c *Column) Reset() {
	c.Ends, c.Valid, c.Values, c.Offsets = c.Ends[:0], c.Valid[:0], c.Values[:0], c.Offsets[:0]
	c.Entries, c.Short = c.Entries[:0], c.Short[:0]
	c.Use(nil)
	c.Absent = false
}

// CountValid returns how many slots are not null.
func CountValid(valid []byte) int {
	n := 0
	for ; len(valid) >= 32; valid = valid[32:] {
		v := (*[32]byte)(valid)
		sums := binary.LittleEndian.Uint64(v[0:]) + binary.LittleEndian.Uint64(v[8:]) +
			binary.LittleEndian.Uint64(v[16:]) + binary.LittleEndian.Uint64(v[24:])
		n += int(sums * 0x0101010101010101 >> 56) // the product's highest byte is the sum of all eight
	}
	for ; len(valid) >= 8; valid = valid[8:] {
		n += int(binary.LittleEndian.Uint64(valid) * 0x0101010101010101 >> 56)
	}
	for _, v := range valid {
		n += int(v)
	}
	return n
}
