package shardsvc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/headrace/headrace/shardsvc/line"
)

// Every stored value begins with the version of its layout.
const valueVersion = 1

// recordsVersion of `p`, `s` and `a` has the records in what is settled. Of older
// ones they are untold.
const recordsVersion = 2

var errShort = errors.New("value is cut short")

// decoder reads a value; the first error sticks and later reads give zeros.
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	x, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[n:]
	return x
}

func (d *decoder) int() int64 {
	x, n := binary.Varint(d.b)
	if n <= 0 {
		d.fail(errShort)
		return 0
	}
	d.b = d.b[n:]
	return x
}

func (d *decoder) u32() uint32 {
	x := d.uint()
	if x > 1<<32-1 {
		d.fail(fmt.Errorf("%d does not fit 32 bits", x))
		return 0
	}
	return uint32(x)
}

func (d *decoder) bool() bool {
	x := d.uint()
	if x > 1 {
		d.fail(fmt.Errorf("%d is not a bool", x))
	}
	return x == 1
}

func (d *decoder) fixed32() uint32 {
	if len(d.b) < 4 {
		d.fail(errShort)
		return 0
	}
	x := be.Uint32(d.b)
	d.b = d.b[4:]
	return x
}

func (d *decoder) fixed64() uint64 {
	if len(d.b) < 8 {
		d.fail(errShort)
		return 0
	}
	x := be.Uint64(d.b)
	d.b = d.b[8:]
	return x
}

// bytes copies, because a stored value is valid during Load only.
func (d *decoder) bytes() []byte {
	n := d.uint()
	if n > uint64(len(d.b)) {
		d.fail(errShort)
		return nil
	}
	x := append([]byte(nil), d.b[:n]...)
	d.b = d.b[n:]
	return x
}

func (d *decoder) string() string { return string(d.bytes()) }

// count reads the length of a list whose items take at least size bytes each.
func (d *decoder) count(size int) int {
	n := d.uint()
	if n > uint64(len(d.b)/size) {
		d.fail(errShort)
		return 0
	}
	return int(n)
}

func (d *decoder) done() error {
	if d.err == nil && len(d.b) > 0 {
		d.err = fmt.Errorf("%d bytes too many", len(d.b))
	}
	return d.err
}

func open(b []byte) decoder {
	d, _ := openUpTo(b, valueVersion)
	return d
}

// openUpTo opens a value whose layout has grown: what its version does not have
// is left out.
func openUpTo(b []byte, newest byte) (d decoder, version byte) {
	if len(b) == 0 {
		return decoder{err: errShort}, 0
	}
	d = decoder{b: b[1:]}
	if b[0] < valueVersion || b[0] > newest {
		d.fail(fmt.Errorf("version %d, this binary knows %d: start the newer binary", b[0], newest))
	}
	return d, b[0]
}

func appendBool(b []byte, x bool) []byte {
	if x {
		return append(b, 1)
	}
	return append(b, 0)
}

func appendString[S ~string | ~[]byte](b []byte, s S) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func appendUint[T ~uint32 | ~uint64 | ~int](b []byte, x T) []byte {
	return binary.AppendUvarint(b, uint64(x))
}

func appendInt[T ~int64 | ~int](b []byte, x T) []byte { return binary.AppendVarint(b, int64(x)) }

// jobVersion 2 has what cuts need.
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

// datasetVersion 2 has GoOnAfterLoss, 3 virtual ranks, 4 Resume.
const datasetVersion = 4

// datasetValue is `d`.
type datasetValue struct {
	name, reason             string
	spec                     []byte
	paused, failed, partsAll bool
	opt                      Options
}

func (v *datasetValue) append(b []byte) []byte {
	b = append(b, datasetVersion)
	b = appendString(b, v.name)
	b = appendString(b, v.reason)
	b = appendString(b, v.spec)
	for _, x := range [...]bool{v.paused, v.failed, v.partsAll, v.opt.Strict, v.opt.Shuffle, false} { // the last one is not used
		b = appendBool(b, x)
	}
	b = appendUint(b, v.opt.Seed)
	for _, x := range [...]int64{int64(v.opt.Passes), v.opt.Block, v.opt.Initial, v.opt.Min, v.opt.Max, int64(v.opt.Target), int64(v.opt.Stall)} {
		b = appendInt(b, x)
	}
	b = appendBool(appendString(b, v.opt.Unit), v.opt.GoOnAfterLoss)
	b = appendBool(appendUint(b, v.opt.VirtualRanks), v.opt.InOrder)
	return appendUint(b, uint32(v.opt.Resume))
}

func decodeDataset(b []byte) (v datasetValue, err error) {
	d, version := openUpTo(b, datasetVersion)
	v.name, v.reason, v.spec = d.string(), d.string(), d.bytes()
	v.paused, v.failed, v.partsAll = d.bool(), d.bool(), d.bool()
	v.opt.Strict, v.opt.Shuffle, _ = d.bool(), d.bool(), d.bool()
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
	if err := d.done(); err != nil {
		return v, err
	}
	return v, v.opt.validate()
}

// partitionVersion has a name, which recordsVersion has not.
const partitionVersion = recordsVersion + 1

// partitionValue is `p`.
type partitionValue struct {
	identity, name      string
	estimated, complete bool
	done                uint32            // passes [0, done) are settled and folded away
	units               [line.Kinds]int64 // of those passes
	records             cut.Tally         // of those; private: of all bases
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
		v.units[i] = d.int()
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

func appendPlace(b []byte, p line.Place) []byte { return appendInt(appendInt(b, p.Segment), p.Offset) }

func (d *decoder) place() line.Place { return line.Place{Segment: d.int(), Offset: d.int()} }

// settledValue is `s`: everything below low, and ranges above it.
type settledValue struct {
	units   [line.Kinds]int64
	records cut.Tally
	low     line.Place
	ranges  []settledRange
}

type settledRange struct {
	start, end line.Place
	kind       uint32
}

func decodeSettled(b []byte) (v settledValue, err error) {
	d, version := openUpTo(b, recordsVersion)
	for i := range v.units {
		v.units[i] = d.int()
	}
	if v.records = cut.Untold(max(v.units[line.Acked], 0)); version >= recordsVersion {
		v.records = d.tally(v.units[line.Acked])
	}
	v.low = d.place()
	for range d.count(5) {
		r := settledRange{d.place(), d.place(), d.u32()}
		if r.kind >= line.Kinds {
			d.fail(fmt.Errorf("unknown kind %d of a settled range", r.kind))
		}
		v.ranges = append(v.ranges, r)
	}
	return v, d.done()
}

func (v *settledValue) append(b []byte) []byte {
	b = appendSettledHead(b, &v.units, &v.records, v.low, len(v.ranges))
	for _, r := range v.ranges {
		b = appendUint(appendPlace(appendPlace(b, r.start), r.end), r.kind)
	}
	return b
}

func appendSettledHead(b []byte, units *[line.Kinds]int64, records *cut.Tally, low line.Place, ranges int) []byte {
	b = append(b, recordsVersion)
	for _, x := range units {
		b = appendInt(b, x)
	}
	b = records.Append(b)
	return appendUint(appendPlace(b, low), ranges)
}

// runVersion of `a` has several pieces.
const runVersion = 3

// ackValue is `a`: settled pieces, one behind the other, each bound to a step of a
// rank. They end in the segment that the first one starts in.
type ackValue struct {
	rank, generation uint32
	pieces           []ackPiece
	uncounted        bool // one, by a version that did not count: all of its units are untold
}

const ackPieceBytes = 6 // at least

type ackPiece struct {
	end, step int64
	records   cut.Tally
}

func (v *ackValue) append(b []byte) []byte {
	first := &v.pieces[0]
	if v.uncounted {
		b = appendUint(appendUint(appendInt(append(b, valueVersion), first.end), v.rank), v.generation)
		return appendInt(b, first.step)
	}
	b = appendUint(appendUint(append(b, runVersion), v.rank), v.generation)
	b = appendUint(b, len(v.pieces))
	end, step := int64(0), int64(0)
	for i := range v.pieces {
		k := &v.pieces[i]
		b = k.records.Append(appendInt(appendInt(b, k.end-end), k.step-step))
		end, step = k.end, k.step
	}
	return b
}

func decodeAck(b []byte) (v ackValue, err error) {
	d, version := openUpTo(b, runVersion)
	if version < runVersion {
		k := ackPiece{end: d.int()}
		v.rank, v.generation, k.step = d.u32(), d.u32(), d.int()
		if v.uncounted = version < recordsVersion; !v.uncounted {
			k.records = d.tally(math.MaxInt64)
		}
		v.pieces = []ackPiece{k}
		return v, d.done()
	}
	v.rank, v.generation = d.u32(), d.u32()
	var k ackPiece
	for range d.count(ackPieceBytes) {
		k.end, k.step = k.end+d.int(), k.step+d.int()
		k.records = d.tally(math.MaxInt64)
		v.pieces = append(v.pieces, k)
	}
	if d.err == nil && len(v.pieces) == 0 {
		d.fail(errors.New("it has no piece"))
	}
	return v, d.done()
}

// triesValue is `t`.
type triesValue struct {
	end   line.Place
	tries uint32 // see tries
}

func (v *triesValue) append(b []byte) []byte {
	return appendUint(appendPlace(append(b, valueVersion), v.end), v.tries)
}

func decodeTries(b []byte) (v triesValue, err error) {
	d := open(b)
	v.end, v.tries = d.place(), d.u32()
	return v, d.done()
}

// rankVersion 2 has what cuts need.
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
	called bool   // did so in this generation, or incarnation
	lost   bool   // private: its process is gone, what it had acked is still to come back
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

// exclusionValue is `x`.
type exclusionValue struct {
	end, units   int64
	kind, reason string
	when         int64
}

func (v *exclusionValue) append(b []byte) []byte {
	b = appendInt(appendInt(append(b, valueVersion), v.end), v.units)
	return appendInt(appendString(appendString(b, v.kind), v.reason), v.when)
}

func decodeExclusion(b []byte) (v exclusionValue, err error) {
	d := open(b)
	v.end, v.units, v.kind, v.reason, v.when = d.int(), d.int(), d.string(), d.string(), d.int()
	return v, d.done()
}

// tally reads what cut.Tally.Append wrote, of so many units.
func (d *decoder) tally(units int64) cut.Tally {
	t := cut.Tally{Rows: d.int(), Untold: d.int(), Oldest: d.int()}
	t.Newest = t.Oldest + d.int()
	if d.err == nil {
		if err := t.Check(units); err != nil {
			d.fail(fmt.Errorf("its records cannot be: %w", err))
		}
	}
	return t
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
