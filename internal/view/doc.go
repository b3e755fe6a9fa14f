// Package view holds what a master says of its job, as values and as tables. The
// values are what -o json and -o yaml promise (docs/CLI.md): fields are added, never
// renamed or removed. Amounts are in the dataset's unit. Functions whose names begin
// with Ask call the master; all others are pure.
//
//	job.go        a job with its agents, workers and newest checkpoint
//	job_tables.go the job as `headrace status` prints it
//	screen.go     the job as `headrace top` repaints it, with what changed last
//	dataset.go    one dataset: progress, description, what a second run is told
//	status.go     one dataset by partition
//	partition.go  a partition, its distances and its leases
//	change.go     what apply, pause, resume and delete did
//	retention.go  how long a broker still keeps what is needed
//	silence.go    a source that does not answer
//	imbalance.go  a rank that waits beside one that stands still
//	records.go    numbers of records with their event times
//	excluded.go   ranges that are settled and were not read
//	bad.go        records that could not be decoded
//	cut.go        one cut of the ledger
//	gone.go       what going back to a cut needs and the source has deleted
package view
