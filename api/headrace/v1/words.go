package headracev1

// Kinds of a ReadFailure. The master looks at KindAway only: the source did not answer, which
// says nothing about the range.
const (
	KindAway      = "away"
	KindIO        = "io"
	KindChanged   = "changed"
	KindTruncated = "truncated"
	KindDiverged  = "diverged"
	KindMalformed = "malformed"
	KindTooLarge  = "too_large"
	KindDecode    = "decode" // also of a BadRecord
)
