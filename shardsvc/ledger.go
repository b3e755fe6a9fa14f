package shardsvc

import "fmt"

// ledger knows for each record whether it is pending, leased or settled, and who holds it.
type ledger struct {
	*turn
	above aboveLedger

	folds   bool // an ack folds into the settled set at once, because nobody can ask for an older step than now (shared, undeclared)
	perRank bool // each rank has a model of its own (private)

	nextDS    DatasetID
	nextPart  PartitionNo
	datasets  []*dataset   // by id; nil: never made, or removed
	parts     []*partition // by number; nil likewise
	leftovers []Leftover   // by number
	someBound bool         // a cut is bound; set only where acks fold

	leases   leaseTable
	holders  []*holder // in order of arrival
	accounts map[uint32]*account
	stepsDue bool // a step was reported, or a rank was told END: a cut may be complete

	dirty   dirty
	kicked  []*dataset
	thieves []*holder // scratch of steal scans
	victims []victim  // scratch of steal scans
}

// aboveLedger is everything that the ledger asks of the rooms above it.
type aboveLedger interface {
	// standingOf says whether w is kept from all rows now. If so, its requests are parked.
	standingOf(w *holder) standing
	// pinned says whether a cut of the rank at a step in [low, high) is kept or waited
	// for. Acks at these steps are not joined with others.
	pinned(rank uint32, low, high int64) bool
	// acked says that records which w held are settled now.
	acked(w *holder)
	// inRounds says whether the ranks read a dataset in rounds. Each of them then waits for
	// the others.
	inRounds(id DatasetID) bool
}

func (lg *ledger) init(t *turn) {
	*lg = ledger{turn: t, folds: !t.model.byStep, perRank: t.model.perRank,
		nextDS: 1, nextPart: 1, leases: newLeaseTable(), accounts: map[uint32]*account{}}
}

func (lg *ledger) report(r Report) {
	if d := lg.dataset(r.Dataset); d != nil {
		r.Name = d.name
	}
	if p := lg.partition(r.Partition); p != nil {
		r.Label = p.label()
	}
	lg.fx.Reports = append(lg.fx.Reports, r)
}

func (lg *ledger) rejected(format string, args ...any) {
	lg.report(Report{Kind: ReportRejected, Reason: fmt.Sprintf(format, args...)})
}

func (lg *ledger) dataset(id DatasetID) *dataset {
	if int64(id) < int64(len(lg.datasets)) {
		return lg.datasets[id]
	}
	return nil
}

// called is how a reason names a dataset.
func (lg *ledger) called(id DatasetID) string {
	if d := lg.dataset(id); d != nil {
		return fmt.Sprintf("dataset %q", d.name)
	}
	return fmt.Sprintf("dataset %d", id)
}

// virtualRanks is how many virtual ranks a dataset has; 0: it is not bit_exact, or there is
// no such dataset.
func (lg *ledger) virtualRanks(id DatasetID) uint32 {
	if d := lg.dataset(id); d != nil {
		return d.opt.VirtualRanks
	}
	return 0
}

// leasesOf counts the leases of a dataset, if it is there.
func (lg *ledger) leasesOf(id DatasetID) (leases int, known bool) {
	if d := lg.dataset(id); d != nil {
		return d.leases, true
	}
	return 0, false
}

func (lg *ledger) partition(no PartitionNo) *partition {
	if int64(no) < int64(len(lg.parts)) {
		return lg.parts[no]
	}
	return nil
}

// maxNamed is how many ranks or paths a reason names at most.
const maxNamed = 8

// standUnder says which room stands above the ledger.
func (lg *ledger) standUnder(a aboveLedger) { lg.above = a }
