// Package schema says what a writer wrote: the types of Avro records. It parses Avro's
// schemas (JSON).
//
// Schemas come from outside: from a registry, or from the head of a file. Depth, number of
// types and size are bounded, and the parser is fuzzed.
//
//	schema.go   one schema
//	avro.go     Avro's types
//	parse.go    Avro schemas from JSON
//	logical.go  logical types
package schema
