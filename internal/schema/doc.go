// Package schema says what a writer wrote: the types of Avro records, which it parses from
// JSON, and the messages of Protobuf, which it takes from source text or descriptors.
//
// Schemas come from outside: from a registry, or from the head of a file. Depth, number of
// types and size are bounded, and the parser is fuzzed.
//
//	schema.go   one schema
//	avro.go     Avro's types
//	parse.go    Avro schemas from JSON
//	logical.go  logical types
//	proto.go    Protobuf files: source text, descriptors, what they import
package schema
