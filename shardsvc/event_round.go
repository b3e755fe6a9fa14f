package shardsvc

// RoundReport says how far a rank of a series is (docs/ROUNDS.md).
type RoundReport struct {
	Worker   uint32
	Dataset  DatasetID
	Series   uint32 // the trainer's number of this run of rounds
	Virtual  uint32 // of a bit_exact dataset: the virtual rank of its stream, from 1
	Through  uint32 // its process has received its batches of all rounds up to this one
	More     bool   // a row of a later round is decoded
	Drained  bool   // it has read all that it was leased, and was told so
	Newest   uint64 // the highest sequence of its leases that its agent knew of
	Closed   bool   // it takes part in no later round
	Again    bool   // the first one of a session
	Told     uint32 // it was told before that the rounds up to this one go
	ToldLast bool   // and that this one is the last
	Endless  bool   // the dataset has no end, so no round is the last one
	Drop     bool   // no round is short: what is left at the end is dropped
	Done     bool   // it has stepped the last round, and what it had beyond it is given back
	MaxWait  Time
	Rows     []uint32 // rows of its batches of the rounds up to Through, without those that it has reported before or was told
	ToldRows []uint64 // with Again: rows of all ranks in each of the newest rounds up to Told
}
