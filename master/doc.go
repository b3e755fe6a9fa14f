// Package master is the process that owns a job: it opens the store, runs the
// shard service (shardsvc/serve) behind gRPC, lists the records of every
// dataset ahead of the plan, and serves metrics and health over HTTP.
//
// It decides nothing about records, reads none and knows no adapter: cmd gives it a
// function that opens a source. Only cmd and tests use it.
//
//	config.go    Config and defaults
//	master.go    its life: New, Run, Ready; what stops in which order
//	folder.go    ends the master when its state folder is removed or replaced
//	grpc.go      the gRPC server and its limits
//	http.go      /metrics, /healthz, /readyz, pprof
//	guard.go     how far unread records are from deletion
//	foresee.go   the arithmetic of that forecast
//	gone.go      what the oldest kept checkpoint needs and the source has deleted
//	discover.go  which datasets need listing
//	inputs.go    the inputs of a dataset: its backfill, and its source
//	list.go      lists one input
//	follow.go    lists a live dataset: its partitions, and where they end now
//	roll.go      a live partition with several segments; the last one grows
//	fold.go      has segments folded that their source can do without
//	age.go       which records are older than a dataset wants
//	silent.go    whether the sources answer
//	away.go      asks the sources that agents could not reach
//	compare.go   records that a broker took back and replaced by others
//	ruler.go     distances between positions of a partition
//	commits.go   sends brokers our progress, and the records that they must keep
//	look.go      whether the manifest of a checkpoint exists
//	letters.go   writes dead letters where their datasets want them
//	peers.go     where agents find each other, for copies of checkpoints in memory
//	release.go   removes what a deleted dataset has at its broker
//	landing/     pushed records: staging, commits
package master
