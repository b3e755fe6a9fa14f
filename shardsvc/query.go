package shardsvc

// DatasetInfo is what the core knows of one dataset.
type DatasetInfo struct {
	ID              DatasetID
	Name            string
	Spec            []byte
	Options         Options
	State           string // listing | running | paused | failed | done
	Reason          string
	Counts          Counts
	Partitions      int
	PartitionsKnown bool // PartitionsListed was said
	ListingComplete bool
	Pass            uint32 // oldest one that is not settled
	Leases          int
	Waiting         int // open requests
}

// Counts are in units of the source.
type Counts struct {
	Listed, Planned, Pending, Leased, Settled int64
	Acked, Excluded, Dropped                  int64
	Committed, Bound                          int64
}

// PartitionInfo says how far one partition is listed.
type PartitionInfo struct {
	Number      PartitionNo
	Dataset     DatasetID
	Identity    string
	Complete    bool
	LastSegment int64 // -1: none
	Segments    int   // kept in memory
	Ahead       int64 // units listed beyond the frontier
}

// PassInfo is the state of one (partition, pass).
type PassInfo struct {
	Number    PartitionNo
	Identity  string
	Pass      uint32
	Distances Distances
	Counts    Counts
	Leases    int
	Lease     []LeaseInfo // at most 100
}

// Distances to head in units: Committed >= Bound >= Acked >= Leased >= Planned.
type Distances struct {
	Committed, Bound, Acked, Leased, Planned, Head int64
	Estimated                                      bool
}

type LeaseInfo struct {
	Token              Token
	Agent              string
	Rank               uint32
	Segment            int64
	Start, Prefix, End int64
	Age                Time
}

type JobInfo struct {
	Job, Model                              string
	Term, Epoch, Generation, WorldSize      uint32
	Recovering                              bool
	Grants, Acks, Refused, Reclaims, Steals uint64
}

type AgentInfo struct {
	Name        string
	Incarnation uint64
	Session     Session // 0: lost
	LastHeard   Time
	Workers     int
}

type WorkerInfo struct {
	Number      uint32
	Rank        uint32
	Incarnation uint64
	Agent       string
	Pid         int32
	State       string // running | waiting | paused | stalled | ending | detached
	Rate        float64
	UnitsAcked  uint64
	Step        int64
	Leases      int
	WaitSeconds float64
	StepSeconds float64
	RowsYielded uint64
}
