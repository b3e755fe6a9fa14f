package schema

// Kind is a kind of Avro type.
type Kind uint8

const (
	Null Kind = iota + 1
	Bool
	Int
	Long
	Float
	Double
	Bytes
	String
	Fixed
	Enum
	Array
	Map
	Record
	Union
)

var kindNames = [...]string{Null: "null", Bool: "a boolean", Int: "an int", Long: "a long", Float: "a float", Double: "a double",
	Bytes: "bytes", String: "a string", Fixed: "fixed bytes", Enum: "an enum", Array: "an array", Map: "a map", Record: "a record", Union: "a union"}

// String is the kind with its article, as errors say it.
func (k Kind) String() string { return kindNames[k] }

// Logical is what a type's values mean.
type Logical uint8

const (
	None Logical = iota
	Decimal
	UUID
	Date
	TimeMillis
	TimeMicros
	TimestampMillis // also local-timestamp-millis, and so on
	TimestampMicros
	TimestampNanos
)

// Type is a type of Avro. Named types may contain themselves.
type Type struct {
	Kind     Kind
	Name     string // full name of a record, an enum or fixed bytes
	Logical  Logical
	Scale    int      // of a decimal
	Size     int      // of fixed bytes
	Symbols  []string // of an enum
	Fields   []Field  // of a record
	Item     *Type    // of an array; of the values of a map
	Branches []*Type  // of a union
}

// Field of a record.
type Field struct {
	Name    string
	Aliases []string
	Type    *Type
}

// Field is the one with a name, or with an alias if no field has that name; nil: none.
func (t *Type) Field(name string) *Field {
	for i := range t.Fields {
		if t.Fields[i].Name == name {
			return &t.Fields[i]
		}
	}
	for i := range t.Fields {
		for _, a := range t.Fields[i].Aliases {
			if a == name {
				return &t.Fields[i]
			}
		}
	}
	return nil
}

// FieldNames are those of a record.
func (t *Type) FieldNames() []string {
	names := make([]string, len(t.Fields))
	for i := range t.Fields {
		names[i] = t.Fields[i].Name
	}
	return names
}
