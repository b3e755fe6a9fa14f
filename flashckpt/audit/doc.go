// Package audit answers, from a cut alone and without any master, which records
// are in a model: all of them, whether one is, and what two models do not share.
// Answers are in the source's own coordinates, through a shuffle too.
//
// In the model is what is settled, without the excluded list and the ranges that
// were dropped. Where records were dropped below the low mark a cut counts them
// without saying which; then the answers say so (Pass.Vague).
//
//	space.go     order space to the source's segments and back; permute.go the shuffle
//	report.go    everything that is in a cut; records.go: how many records
//	contains.go  is this record in it?
//	diff.go      what one has and another has not
package audit
