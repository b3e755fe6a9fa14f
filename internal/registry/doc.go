// Package registry asks a schema registry, by the HTTP interface that Confluent's has, for
// the schemas of the ids that records name. It asks for each id once in a process, while the
// records are read, so that decoding does no I/O.
//
// A registry that does not answer is a *sources.Temporary error: the same records are read
// again later. A registry that refuses the login is a permanent error. An id that it does not
// know, and a schema that cannot be read, are faults of the records that name them.
//
//	client.go   one request, and what its answer means
//	registry.go the schemas that are known; one request at a time for an id
//	reading.go  a source whose records' schemas are known when it gives them
//	parse.go    an answer as a schema
package registry
