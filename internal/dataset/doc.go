// Package dataset is the written form of a dataset: what to read, how to cut it
// into records, and which columns to make of a record. It parses and validates
// the YAML a user writes (errors name line, field, value and reason), fills in
// the defaults, and gives the schema that decoders, frames and clients share.
// It reads no data and knows no protocol.
//
//	spec.go      the shape of a spec, and its defaults
//	parse.go     YAML with line numbers, validation
//	schema.go    columns as decoders and clients see them
package dataset
