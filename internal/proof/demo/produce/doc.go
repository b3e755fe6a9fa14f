// Package produce puts the click log into a topic, record by record in the log's
// order and at a steady pace, while others read it.
//
// The truth says which offset each record has before it is there (clicklog.Topic),
// so a producer may neither lose nor repeat one, also when its broker is killed
// with a request on the way: testbroker.Appender's part.
package produce
