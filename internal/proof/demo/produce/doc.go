// Package produce writes the click log into a topic, in the log's order and at a steady pace, while the
// topic is read.
//
// The truth (clicklog.Topic) says in advance which offset each record gets. So a producer must neither
// lose nor repeat a record, even if its broker is killed during a request. testbroker.Appender takes
// care of that.
package produce
