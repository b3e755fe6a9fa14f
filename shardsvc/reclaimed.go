package shardsvc

import "fmt"

// Reclaimed says why leased rows are pending again.
type Reclaimed uint8

const (
	ReclaimedEnded         Reclaimed = iota + 1 // the process has ended
	ReclaimedExpired                            // no agent has spoken for the process for too long
	ReclaimedReleased                           // the agent gave the rest of the lease back
	ReclaimedReadFailed                         // the agent could not read the rows
	ReclaimedSourceAway                         // the agent could not reach the source
	ReclaimedBadRecord                          // a record of the lease cannot be decoded
	ReclaimedTruncated                          // the source has deleted records of the lease
	ReclaimedFenced                             // another process came for the rank
	ReclaimedNotReasserted                      // the agent came again and did not name the lease
	ReclaimedGeneration                         // the generation has ended
	ReclaimedLeft                               // the process has left
	ReclaimedRestore                            // the process went back to a cut
	ReclaimedRewound                            // a person went back to a cut
	ReclaimedOperator                           // a person called `headrace reclaim`
)

// String returns the word of the log and of the metric's label.
func (r Reclaimed) String() string {
	if int(r) < len(reclaimedWords) && r > 0 {
		return reclaimedWords[r]
	}
	return fmt.Sprintf("Reclaimed(%d)", uint8(r))
}

var reclaimedWords = [...]string{
	ReclaimedEnded: "ended", ReclaimedExpired: "expired", ReclaimedReleased: "released", ReclaimedReadFailed: "read_failed",
	ReclaimedSourceAway: "source_away", ReclaimedBadRecord: "bad_record", ReclaimedTruncated: "truncated", ReclaimedFenced: "fenced",
	ReclaimedNotReasserted: "not_reasserted", ReclaimedGeneration: "generation", ReclaimedLeft: "left", ReclaimedRestore: "restore",
	ReclaimedRewound: "rewound", ReclaimedOperator: "operator",
}
