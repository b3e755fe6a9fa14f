package decode

// kind is what a slot holds.
type kind uint8

const (
	missing   kind = iota // absent or null
	text                  // csv, tsv, keys, headers, whole records: parsed by the column's dtype
	str                   // a JSON string without escapes
	escaped               // a JSON string with escapes
	number                // a JSON number
	truth                 // true
	falsehood             // false
	object
	array
)

var kindNames = [...]string{missing: "nothing", text: "text", str: "a string", escaped: "a string", number: "a number",
	truth: "true", falsehood: "false", object: "an object", array: "an array"}

// slot is where the value of one wanted path lies in the current record: bytes
// [start, end) of the record's buffer, or of scratch. Strings without their quotes.
type slot struct {
	start, end int32
	kind       kind
	scratch    bool
	ready      bool   // a number of up to 7 digits, which value is; or null
	value      uint32 // 0 unless ready
}

func (s slot) isMissing() bool { return s.kind == missing }

// list is the values of a path with a *, in the order of the record.
type list struct {
	slots []slot
	base  int // where the current element of the innermost array began
}
