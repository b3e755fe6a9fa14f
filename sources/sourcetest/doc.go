// Package sourcetest is the suite that every source passes: the promises of
// package sources as tests, run against the real thing behind an adapter. An
// adapter's test makes a Harness and calls Run.
//
//	harness.go   what an adapter's test brings
//	read.go      reading ranges and whole places
//	ranges.go    a record belongs to the range it begins in, however one splits
//	listing.go   segments and their numbers, growth
//	failures.go  what is gone, changed, too large, cancelled
//	tail.go      input without an end
//	dated.go     where records of a time begin
//	load.go      a million records, readers side by side, a slow one
//	roll.go      segments that are sealed while they are read, and the next ones
package sourcetest
