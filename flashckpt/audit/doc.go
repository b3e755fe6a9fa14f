// Package audit answers, from a cut alone and without any master, which records
// are in a model: all of them, whether one is, and what two models do not share.
// Answers are in the source's own coordinates, through a shuffle too.
//
// A record is in the model if it is settled, and neither excluded nor dropped. Below the
// low mark a cut only counts dropped records and does not say which they are; then the
// answers say so (Pass.Vague).
//
//	space.go     order space to the source's segments and back; permute.go the shuffle
//	report.go    everything that is in a cut; records.go: how many records
//	contains.go  is this record in it?
//	diff.go      what one has and another has not; trimmed.go: where one of them lists fewer segments
package audit
