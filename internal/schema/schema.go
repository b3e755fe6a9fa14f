package schema

// Schema is what the records of one writer are made of. One field is set.
type Schema struct {
	Avro  *Type
	Proto *Proto
}

// Bounds of a schema that comes from outside.
const (
	MaxText  = 4 << 20 // bytes of one schema
	maxTypes = 1 << 16 // types of one schema
	maxDepth = 64      // types written inside each other
)
