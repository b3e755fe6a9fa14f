package planted

// Names of the bugs.
const (
	FenceDropped       = "fence dropped"                    // a process that was given up may come back
	AckBeforeDurable   = "ack answered before durable"      // it is stored with a later batch
	StealOffByOne      = "off by one in a steal"            // one unit too much is given to others
	StealDelivered     = "steal of a delivered tail"        // the holder gives up what left for its trainer
	BindBeforeManifest = "bind before manifest"             // a cut counts as bound when it is frozen
	LateAckInCut       = "late ack into a frozen cut"       // what is acked before it is bound gets into it
	TermForEpoch       = "term taken for epoch"             // a new master fences who holds leases
	DeposedGrants      = "deposed master grants"            // and answers, though its disk is another's
	HoldFollowsNewest  = "hold follows the newest cut"      // what the oldest needs may be deleted
	HistoryLost        = "unfolded history lost on restart" // acks that wait for a cut are not loaded
	EndWithLeaseOut    = "end of data with a lease out"
	CommitBeforeBound  = "commit before bound"                // the broker is told what is acked
	GrantTwice         = "a lost grant is not taken back"     // of a broken stream
	StepsFold          = "steps of a frozen cut fold"         // before it is bound
	VirtualMixed       = "virtual ranks are mixed up"         // bit_exact: a request gets what another one's is
	TakenRestored      = "a taken cut is restored"            // of a rank's life with a master that is gone
	SettleBlind        = "a cut is settled without a look"    // bound, though its manifest is not there
	CarriedForgotten   = "a carried cut is forgotten"         // when its rank is lost
	RemovedBound       = "a checkpoint is removed when bound" // before it is unbound
	HoldEndsEarly      = "hold released before the freeze"    // trainers go on while the state is captured
	AckGrows           = "an ack grows after it was sent"     // its records are counted with those of the next
	DeposedIdle        = "an idle deposed master answers"     // it has not looked whether its disk is its own
	LossCountsAsRead   = "a loss counts as read"              // what the source has lost is settled as acked
	ManifestsLosses    = "losses of a manifest are forgotten" // who restores it is not told what it excludes
	GoneUntold         = "what is gone is not told"           // a checkpoint is listed as one to go back to
)

// Names lists them all.
var Names = []string{FenceDropped, AckBeforeDurable, StealOffByOne, StealDelivered, BindBeforeManifest, LateAckInCut,
	TermForEpoch, DeposedGrants, HoldFollowsNewest, HistoryLost, EndWithLeaseOut, CommitBeforeBound, GrantTwice, StepsFold,
	VirtualMixed, TakenRestored, SettleBlind, CarriedForgotten, RemovedBound, HoldEndsEarly, AckGrows, DeposedIdle,
	LossCountsAsRead, ManifestsLosses, GoneUntold}
