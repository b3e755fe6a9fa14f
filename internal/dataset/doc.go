// Package dataset is the written form of a dataset: what to read, how to cut it
// into records, and which columns to make of a record. It parses and validates
// the YAML that a user writes: errors name line, field, value and reason. It fills
// in the defaults, and gives the schema that decoders, frames and clients share.
// It reads no data and knows no source: the adapters register theirs (Kind, Part).
//
//	kind.go      kinds of sources: what an adapter declares, and the registered ones
//	spec.go      the shape of a spec without its source's part
//	broker.go    what the parts of several brokers have in common
//	landing.go   how a dataset takes records that are pushed
//	reach.go     how a broker is reached: the spec itself, or a connection of the operator
//	defaults.go  what is filled in
//	parse.go     YAML text to specs
//	file.go      a spec's file on the command line: relative roots, several documents
//	variables.go ${NAME} in a spec's text
//	yaml.go      walking YAML nodes with their lines
//	validate.go  what makes sense; columns.go the part about columns
//	binary.go    the fixed layout of format binary
//	features.go  format tfrecord: features of a tf.Example
//	writers.go   formats avro and protobuf: where the schemas of records are
//	backfill.go  the history of a live source, in files
//	catchup.go   what comes first, and what is too old
//	bad.go       what is done with records that cannot be decoded
//	path.go      where a column's value is: field, JSON Pointer, $value
//	value.go     dtypes, and values written in a spec
//	units.go     sizes and durations
//	schema.go    columns as decoders, frames and clients see them
//	json.go      the normalised form that is stored and sent
//	diff.go      what a new version of a spec changes
//	ends.go      where input of a kind ends, in the words of its spec, for errors
//	errors.go    SpecError: file, line, field, value, reason
//	nearest.go   the known name that was probably meant
package dataset
