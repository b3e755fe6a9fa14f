package wire

import "github.com/headrace/headrace/shardsvc"

// Order says which replies may share a MasterMessage. An agent applies the fields of a
// message by field number, not in the order in which they were written. A grant (10) has
// a higher number than a revoke (7) or a fence (9): if a revoke joined the message of an
// earlier grant, the agent would apply the revoke first. A standing (11) has a higher
// number than a grant, so a grant must not join a message that has a standing. Acks and
// rounds join any message. Example: [grant, revoke, grant] becomes the two messages
// [grant] and [revoke, grant].
type Order struct {
	grants, standings bool
	early             bool // has a reply that takes effect before a grant
}

// Takes says whether a reply of this kind may follow.
func (o *Order) Takes(kind shardsvc.ReplyKind) bool {
	switch kind {
	case shardsvc.ReplyAck, shardsvc.ReplyStanding, shardsvc.ReplyRound:
		return true
	case shardsvc.ReplyGrant:
		return !o.standings
	}
	return !o.grants
}

// Add notes a reply that Takes allowed.
func (o *Order) Add(kind shardsvc.ReplyKind) {
	switch kind {
	case shardsvc.ReplyAck, shardsvc.ReplyRound:
	case shardsvc.ReplyGrant:
		o.grants = true
	case shardsvc.ReplyStanding:
		o.standings = true
	default:
		o.early = true
	}
}

// TakesAll says whether all replies of another message may follow.
func (o *Order) TakesAll(next *Order) bool {
	return !(o.grants && next.early || o.standings && next.grants)
}

// AddAll notes the replies of a message that TakesAll allowed.
func (o *Order) AddAll(next *Order) {
	o.grants, o.standings, o.early = o.grants || next.grants, o.standings || next.standings, o.early || next.early
}
