package shardsvc

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Every stored value begins with the version of its layout.
const valueVersion = 1

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
	if len(b) == 0 {
		return decoder{err: errShort}
	}
	d := decoder{b: b[1:]}
	if b[0] != valueVersion {
		d.fail(fmt.Errorf("version %d, this binary knows %d: start the newer binary", b[0], valueVersion))
	}
	return d
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

// jobValue is `j`.
type jobValue struct {
	job, model                         string
	epoch, term, generation, worldSize uint32
	generationEnded                    bool
	nextDataset                        DatasetID
	nextPartition                      PartitionNo
}

func (v *jobValue) append(b []byte) []byte {
	b = append(b, valueVersion)
	b = appendString(b, v.job)
	b = appendString(b, v.model)
	for _, x := range [...]uint32{v.epoch, v.term, v.generation, v.worldSize} {
		b = appendUint(b, x)
	}
	b = appendBool(b, v.generationEnded)
	b = appendUint(b, v.nextDataset)
	return appendUint(b, v.nextPartition)
}

func decodeJob(b []byte) (v jobValue, err error) {
	d := open(b)
	v.job, v.model = d.string(), d.string()
	v.epoch, v.term, v.generation, v.worldSize = d.u32(), d.u32(), d.u32(), d.u32()
	v.generationEnded = d.bool()
	v.nextDataset, v.nextPartition = d.u32(), d.u32()
	return v, d.done()
}

// datasetValue is `d`.
type datasetValue struct {
	name, reason             string
	spec                     []byte
	paused, failed, partsAll bool
	opt                      Options
}

func (v *datasetValue) append(b []byte) []byte {
	b = append(b, valueVersion)
	b = appendString(b, v.name)
	b = appendString(b, v.reason)
	b = appendString(b, v.spec)
	for _, x := range [...]bool{v.paused, v.failed, v.partsAll, v.opt.Strict, v.opt.Shuffle, v.opt.NoCheckpoints} {
		b = appendBool(b, x)
	}
	b = appendUint(b, v.opt.Seed)
	for _, x := range [...]int64{int64(v.opt.Passes), v.opt.Block, v.opt.Initial, v.opt.Min, v.opt.Max, int64(v.opt.Target), int64(v.opt.Stall)} {
		b = appendInt(b, x)
	}
	return appendString(b, v.opt.Unit)
}

func decodeDataset(b []byte) (v datasetValue, err error) {
	d := open(b)
	v.name, v.reason, v.spec = d.string(), d.string(), d.bytes()
	v.paused, v.failed, v.partsAll = d.bool(), d.bool(), d.bool()
	v.opt.Strict, v.opt.Shuffle, v.opt.NoCheckpoints = d.bool(), d.bool(), d.bool()
	v.opt.Seed = d.uint()
	v.opt.Passes = int(d.int())
	v.opt.Block, v.opt.Initial, v.opt.Min, v.opt.Max = d.int(), d.int(), d.int(), d.int()
	v.opt.Target, v.opt.Stall = Time(d.int()), Time(d.int())
	v.opt.Unit = d.string()
	if err := d.done(); err != nil {
		return v, err
	}
	return v, v.opt.validate()
}

// partitionValue is `p`.
type partitionValue struct {
	identity            string
	estimated, complete bool
	done                uint32       // passes [0, done) are settled and folded away
	units               [kinds]int64 // of those passes
}

func (v *partitionValue) append(b []byte) []byte {
	b = append(b, valueVersion)
	b = appendString(b, v.identity)
	b = appendBool(b, v.estimated)
	b = appendBool(b, v.complete)
	b = appendUint(b, v.done)
	for _, x := range v.units {
		b = appendInt(b, x)
	}
	return b
}

func decodePartition(b []byte) (v partitionValue, err error) {
	d := open(b)
	v.identity, v.estimated, v.complete, v.done = d.string(), d.bool(), d.bool(), d.u32()
	for i := range v.units {
		v.units[i] = d.int()
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

// place is a position in order space.
type place struct{ segment, offset int64 }

func (p place) append(b []byte) []byte { return appendInt(appendInt(b, p.segment), p.offset) }

func (d *decoder) place() place { return place{d.int(), d.int()} }

// settledValue is `s`: everything below low, and ranges above it.
type settledValue struct {
	units  [kinds]int64
	low    place
	ranges []settledRange
}

type settledRange struct {
	start, end place
	kind       uint32
}

func decodeSettled(b []byte) (v settledValue, err error) {
	d := open(b)
	for i := range v.units {
		v.units[i] = d.int()
	}
	v.low = d.place()
	for range d.count(5) {
		r := settledRange{d.place(), d.place(), d.u32()}
		if r.kind >= kinds {
			d.fail(fmt.Errorf("unknown kind %d of a settled range", r.kind))
		}
		v.ranges = append(v.ranges, r)
	}
	return v, d.done()
}

func (v *settledValue) append(b []byte) []byte {
	b = appendSettledHead(b, &v.units, v.low, len(v.ranges))
	for _, r := range v.ranges {
		b = appendUint(r.end.append(r.start.append(b)), r.kind)
	}
	return b
}

func appendSettledHead(b []byte, units *[kinds]int64, low place, ranges int) []byte {
	b = append(b, valueVersion)
	for _, x := range units {
		b = appendInt(b, x)
	}
	return appendUint(low.append(b), ranges)
}

// ackValue is `a`: one settled piece, bound to the step of a rank. It ends in
// the segment it starts in.
type ackValue struct {
	end              int64
	rank, generation uint32
	step             int64
}

func (v *ackValue) append(b []byte) []byte {
	b = appendInt(append(b, valueVersion), v.end)
	b = appendUint(b, v.rank)
	b = appendUint(b, v.generation)
	return appendInt(b, v.step)
}

func decodeAck(b []byte) (v ackValue, err error) {
	d := open(b)
	v.end, v.rank, v.generation, v.step = d.int(), d.u32(), d.u32(), d.int()
	return v, d.done()
}

// triesValue is `t`.
type triesValue struct {
	end   place
	tries uint32 // see tries
}

func (v *triesValue) append(b []byte) []byte {
	return appendUint(v.end.append(append(b, valueVersion)), v.tries)
}

func decodeTries(b []byte) (v triesValue, err error) {
	d := open(b)
	v.end, v.tries = d.place(), d.u32()
	return v, d.done()
}

// rankValue is `w`.
type rankValue struct {
	incarnation uint64
	generation  uint32
	step        int64 // last reported
	attached    bool  // its process may run
	fenced      bool  // this incarnation may not come back
	others      bool  // processes of older incarnations may run
}

func (v *rankValue) append(b []byte) []byte {
	b = appendUint(append(b, valueVersion), v.incarnation)
	b = appendInt(appendUint(b, v.generation), v.step)
	return appendBool(appendBool(appendBool(b, v.attached), v.fenced), v.others)
}

func decodeRank(b []byte) (v rankValue, err error) {
	d := open(b)
	v.incarnation, v.generation, v.step = d.uint(), d.u32(), d.int()
	v.attached, v.fenced, v.others = d.bool(), d.bool(), d.bool()
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
