package wire

import "github.com/headrace/headrace/shardsvc"

// Order says what a MasterMessage may hold. The fields of a message take effect in
// the order of their numbers. So a reply about a lease or a worker must not share a
// message with a grant that was made before it, and a grant not with a standing that
// was told before it. An example: [grant, revoke, grant] is two messages, the first
// grant alone in the first one.
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
