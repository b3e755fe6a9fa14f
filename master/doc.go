// Package master is the process that owns a job: it opens the store, runs the
// shard service (shardsvc/serve) behind gRPC, lists the records of every
// dataset ahead of the plan, and serves metrics and health over HTTP.
//
// It decides nothing about records itself, reads none, and knows no adapter:
// cmd hands it a way to open a source. Only cmd and tests call it.
//
//	config.go    what a master is told
//	master.go    its life: New, Run, Ready; who stops what
//	folder.go    its state folder must stay
//	grpc.go      the gRPC server and its limits
//	http.go      /metrics, /healthz, /readyz, pprof
//	guard.go     how far unread records are from deletion; foresee.go the arithmetic
//	gone.go      what the oldest kept checkpoint needs and the source has deleted
//	discover.go  which datasets need listing; list.go one dataset
//	follow.go    one without an end: its partitions, where they end now
//	roll.go      a live partition whose segments end and follow each other
//	silent.go    whether the sources answer
//	compare.go   records that a source took back, and others in their place
//	ruler.go     distances between positions of a partition
//	commits.go   what brokers are told: our progress, and what they must keep; look.go is a checkpoint there?
//	letters.go   dead letters are written where their datasets want them
//	release.go   what a deleted dataset had at its broker
package master
