// Package decode turns record bytes into columns of a frame.Builder, as a dataset's spec
// says. It reads CSV, TSV, JSON lines, plain lines, raw bytes, tf.Example, Avro, Protobuf and
// records of a fixed layout. Rows that a source gives as columns (Parquet) are converted to
// the spec's columns. It is the hot path: nothing is allocated per record, fields are scanned
// 8 bytes at a time, and strings are hashed where they lie.
//
// It asks no registry, reads no files and keeps no positions. Its
// input is untrusted: each scanner accepts and rejects what encoding/csv,
// encoding/json and strconv do (differences are listed at the scanner), and is
// fuzzed against them.
//
//	compile.go    a spec's columns as a Decoder: sources, defaults, hashes
//	decoder.go    Append: records to rows, errors by column
//	error.go      the error of a record that cannot be decoded
//	plan.go       how a record is scanned for the wanted columns
//	slot.go       where the values of one record are
//	delimited.go  CSV and TSV records to slots, quotes included
//	fast.go       quote-free CSV and TSV straight into columns
//	jsonscan.go   JSON grammar: strings, numbers, literals, skipping
//	jsonwalk.go   a JSON record to slots, along the trie of wanted paths
//	jsonpath.go   that trie, and the memory of the previous record's keys
//	convert.go    slots to column elements
//	ragged.go     slots to any number of values
//	binary.go     records of a fixed layout, copied into columns
//	frompath.go   values that folders key=value of a file's path say
//	features.go   a tf.Example to the places of its features; featurevalues.go their values;
//	              examplelook.go all of them, to look at
//	writers.go    records that have the schema of their writer; want.go the paths that columns want of
//	              them; cell.go the places in a row that their values go to
//	avroplan.go   an Avro schema as a program; avrowalk.go the program run over a record
//	protoplan.go a Protobuf message as a program; protofield.go its fields; protowalk.go the
//	              program run over a record; protomap.go entries of maps, and values that
//	              later ones replace; protoput.go values into their cells
//	number.go     text to int64, float32, float64
//	hash.go       XXH64 of salt and value, and its remainder
//	columnar.go   rows of columns into columns; columnnumbers.go those of numbers;
//	              columnvalues.go their values;
//	              shaped.go lists of a fixed length; rowjson.go one row as JSON, for a dead letter
//	eventtime.go  a slot as event time
//	swar.go       8 bytes in one word
package decode
