package shardsvc

import (
	"fmt"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// jobVersion 2 added the fields that cuts need.
const jobVersion = 2

// jobValue is `j`.
type jobValue struct {
	job, model                         string
	epoch, term, generation, worldSize uint32
	generationEnded                    bool
	nextDataset                        DatasetID
	nextPartition                      PartitionNo
	cuts                               uint64 // order number of the newest
	phase                              restorePhase
	choice                             uint64
	restored                           int64
}

func (v *jobValue) append(b []byte) []byte {
	b = append(b, jobVersion)
	b = appendString(b, v.job)
	b = appendString(b, v.model)
	for _, x := range [...]uint32{v.epoch, v.term, v.generation, v.worldSize} {
		b = appendUint(b, x)
	}
	b = appendBool(b, v.generationEnded)
	b = appendUint(b, v.nextDataset)
	b = appendUint(b, v.nextPartition)
	b = appendUint(appendUint(b, v.cuts), uint32(v.phase))
	return appendInt(appendUint(b, v.choice), v.restored)
}

func decodeJob(b []byte) (v jobValue, err error) {
	d, version := openUpTo(b, jobVersion)
	v.job, v.model = d.string(), d.string()
	v.epoch, v.term, v.generation, v.worldSize = d.u32(), d.u32(), d.u32(), d.u32()
	v.generationEnded = d.bool()
	v.nextDataset, v.nextPartition = d.u32(), d.u32()
	if version >= 2 {
		v.cuts = d.uint()
		phase := d.uint()
		if phase >= uint64(restorePhases) {
			d.fail(fmt.Errorf("unknown restore phase %d", phase))
		}
		v.phase, v.choice, v.restored = restorePhase(phase), d.uint(), d.int()
	}
	return v, d.done()
}

// datasetVersion 2 added GoOnAfterLoss, 3 virtual ranks, 4 Resume, 5 the limits of bad
// records, 6 Isolate, 7 a backfill, 8 DropOld. Versions 5 to 8 are written only for a
// dataset that has such an option, so that an older binary can read all others.
const datasetVersion = 8

// datasetValue is `d`.
type datasetValue struct {
	name, reason             string
	spec                     []byte
	paused, failed, partsAll bool
	opt                      Options
}

func (v *datasetValue) append(b []byte) []byte {
	// The version is the lowest that has a field for each option that is set.
	limits, isolate, old := v.opt.MaxBad != 0 || v.opt.MaxBadShare != 0, v.opt.Isolate, v.opt.hasBackfill()
	switch version := byte(datasetVersion); {
	case v.opt.DropOld:
		b, limits, isolate, old = append(b, version), true, true, true
	case old:
		b, limits, isolate = append(b, version-1), true, true
	case isolate:
		b, limits = append(b, version-2), true
	case limits:
		b = append(b, version-3)
	default:
		b = append(b, version-4)
	}
	b = appendString(b, v.name)
	b = appendString(b, v.reason)
	b = appendString(b, v.spec)
	for _, x := range [...]bool{v.paused, v.failed, v.partsAll, v.opt.Strict, v.opt.Shuffle, v.opt.Pushed} {
		b = appendBool(b, x)
	}
	b = appendUint(b, v.opt.Seed)
	for _, x := range [...]int64{int64(v.opt.Passes), v.opt.Block, v.opt.Initial, v.opt.Min, v.opt.Max, int64(v.opt.Target), int64(v.opt.Stall)} {
		b = appendInt(b, x)
	}
	b = appendBool(appendString(b, v.opt.Unit), v.opt.GoOnAfterLoss)
	b = appendBool(appendUint(b, v.opt.VirtualRanks), v.opt.InOrder)
	if b = appendUint(b, uint32(v.opt.Resume)); limits {
		b = appendInt(appendInt(b, v.opt.MaxBad), v.opt.MaxBadShare)
	}
	if isolate {
		b = appendBool(b, v.opt.Isolate)
	}
	if old {
		o := &v.opt.Backfill
		b = appendInt(appendInt(appendInt(appendString(appendString(b, o.Kind), o.Unit), o.Initial), o.Min), o.Max)
		b = appendBool(b, o.NewestFirst)
	}
	if v.opt.DropOld {
		b = appendBool(b, true)
	}
	return b
}

func decodeDataset(b []byte) (v datasetValue, err error) {
	d, version := openUpTo(b, datasetVersion)
	v.name, v.reason, v.spec = d.string(), d.string(), d.bytes()
	v.paused, v.failed, v.partsAll = d.bool(), d.bool(), d.bool()
	v.opt.Strict, v.opt.Shuffle, v.opt.Pushed = d.bool(), d.bool(), d.bool()
	v.opt.Seed = d.uint()
	v.opt.Passes = int(d.int())
	v.opt.Block, v.opt.Initial, v.opt.Min, v.opt.Max = d.int(), d.int(), d.int(), d.int()
	v.opt.Target, v.opt.Stall = Time(d.int()), Time(d.int())
	v.opt.Unit = d.string()
	v.opt.GoOnAfterLoss = version >= 2 && d.bool()
	if version >= 3 {
		v.opt.VirtualRanks, v.opt.InOrder = d.u32(), d.bool()
	}
	if version >= 4 {
		v.opt.Resume = Resume(min(d.u32(), 1<<8-1)) // validated with the others
	}
	if version >= 5 {
		v.opt.MaxBad, v.opt.MaxBadShare = d.int(), d.int()
	}
	v.opt.Isolate = version >= 6 && d.bool()
	if version >= 7 {
		v.opt.Backfill = Backfill{Kind: d.string(), Unit: d.string(), Initial: d.int(), Min: d.int(), Max: d.int(), NewestFirst: d.bool()}
	}
	v.opt.DropOld = version >= 8 && d.bool()
	if err := d.done(); err != nil {
		return v, err
	}
	return v, v.opt.validate()
}

// leftoverValue is `o`.
type leftoverValue struct {
	name string
	spec []byte
}

func (v *leftoverValue) append(b []byte) []byte {
	return appendString(appendString(append(b, valueVersion), v.name), v.spec)
}

func decodeLeftover(b []byte) (v leftoverValue, err error) {
	d := open(b)
	v.name, v.spec = d.string(), d.bytes()
	return v, d.done()
}

// partitionVersion added the name.
const partitionVersion = recordsVersion + 1

// partitionValue is `p`.
type partitionValue struct {
	identity, name      string
	estimated, complete bool
	done                uint32            // passes [0, done) are settled and folded away
	units               [line.Kinds]int64 // of those passes
	records             cut.Tally         // in those units; private: in the bases of all passes
}

func (v *partitionValue) append(b []byte) []byte {
	b = append(b, partitionVersion)
	b = appendString(b, v.identity)
	b = appendBool(b, v.estimated)
	b = appendBool(b, v.complete)
	b = appendUint(b, v.done)
	for _, x := range v.units {
		b = appendInt(b, x)
	}
	return appendString(v.records.Append(b), v.name)
}

func decodePartition(b []byte) (v partitionValue, err error) {
	d, version := openUpTo(b, partitionVersion)
	v.identity, v.estimated, v.complete, v.done = d.string(), d.bool(), d.bool(), d.u32()
	for i := range v.units {
		if v.units[i] = d.int(); v.units[i] > line.Max {
			d.fail(fmt.Errorf("%d units are more than a partition can have", v.units[i]))
		}
	}
	if v.records = cut.Untold(max(v.units[line.Acked], 0)); version >= recordsVersion {
		v.records = d.tally(line.Max)
	}
	if version >= partitionVersion {
		v.name = d.string()
	}
	return v, d.done()
}

// segmentValue is `g`.
type segmentValue struct {
	start, end int64
	sealed     bool
	locator    []byte
	name       string
}

func (v *segmentValue) append(b []byte) []byte {
	b = append(b, valueVersion)
	b = appendInt(b, v.start)
	b = appendInt(b, v.end)
	b = appendBool(b, v.sealed)
	b = appendString(b, v.locator)
	return appendString(b, v.name)
}

func decodeSegment(b []byte) (v segmentValue, err error) {
	d := open(b)
	v.start, v.end, v.sealed, v.locator, v.name = d.int(), d.int(), d.bool(), d.bytes(), d.string()
	if err := d.done(); err != nil {
		return v, err
	}
	if v.start > v.end || v.end-v.start < 0 {
		return v, fmt.Errorf("segment ends at %d before it starts at %d", v.end, v.start)
	}
	return v, nil
}

// rankVersion 2 added the fields that cuts need.
const rankVersion = 2

// rankValue is `w`.
type rankValue struct {
	incarnation uint64
	generation  uint32
	step        int64 // last reported
	attached    bool  // its process may run
	fenced      bool  // this incarnation may not come back
	others      bool  // processes of older incarnations may run

	ended  bool   // was told END, and has asked for nothing since
	must   bool   // gets nothing before it restored
	called bool   // it restored, or said start, in this generation or incarnation
	lost   bool   // private: its process is gone, and its acks have still to become pending again
	base   uint64 // private: the cut that it restored or bound last; 0: the start
	choice uint64 // private: what it was answered when it restored
}

func (v *rankValue) append(b []byte) []byte {
	b = appendUint(append(b, rankVersion), v.incarnation)
	b = appendInt(appendUint(b, v.generation), v.step)
	for _, x := range [...]bool{v.attached, v.fenced, v.others, v.ended, v.must, v.called, v.lost} {
		b = appendBool(b, x)
	}
	return appendUint(appendUint(b, v.base), v.choice)
}

func decodeRank(b []byte) (v rankValue, err error) {
	d, version := openUpTo(b, rankVersion)
	v.incarnation, v.generation, v.step = d.uint(), d.u32(), d.int()
	v.attached, v.fenced, v.others = d.bool(), d.bool(), d.bool()
	if version >= 2 {
		v.ended, v.must, v.called, v.lost = d.bool(), d.bool(), d.bool(), d.bool()
		v.base, v.choice = d.uint(), d.uint()
	}
	return v, d.done()
}

// agentValue is `n`.
type agentValue struct {
	incarnation uint64
	term        uint32   // last term with a session
	superseded  []uint64 // incarnations that may not come back
}

func (v *agentValue) append(b []byte) []byte {
	b = appendUint(append(b, valueVersion), v.incarnation)
	b = appendUint(appendUint(b, v.term), len(v.superseded))
	for _, x := range v.superseded {
		b = appendUint(b, x)
	}
	return b
}

func decodeAgent(b []byte) (v agentValue, err error) {
	d := open(b)
	v.incarnation, v.term = d.uint(), d.u32()
	for range d.count(1) {
		v.superseded = append(v.superseded, d.uint())
	}
	return v, d.done()
}

// restorePhase says how far a generation is in going back to a cut.
type restorePhase uint8

const (
	restoreFree  restorePhase = iota // nothing to go back to, or joining made the choice
	restoreOpen                      // nobody called yet
	restoreWaits                     // the choice is fixed, not all ranks have called; private: a foreign cut was restored
	restoreDone
	restorePhases
)
