package decode

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unsafe"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
)

// element is an element of a frame's column.
type element interface {
	~int32 | ~int64 | ~float32 | ~float64 | ~uint8
}

var valueNames = [...]string{sources.BoolValues: "bools", sources.Int32Values: "int32", sources.Int64Values: "int64", sources.Uint64Values: "uint64",
	sources.Float32Values: "float32", sources.Float64Values: "float64", sources.BytesValues: "text or bytes"}

// wantsKind says why a column cannot be made of what the file has, or "".
func (c *column) wantsKind(col *sources.Column) string {
	if col.Absent {
		return ""
	}
	ok := false
	switch k := col.Kind; {
	case c.hash != nil:
		ok = k == sources.BytesValues || wholeNumbers(k) || k == sources.BoolValues
	case c.text():
		ok = k == sources.BytesValues
	case c.dtype == dataset.Bool:
		ok = k == sources.BoolValues
	case c.dtype == dataset.Int32 || c.dtype == dataset.Int64:
		ok = wholeNumbers(k)
	default:
		ok = k >= sources.Int32Values && k <= sources.Float64Values
	}
	switch {
	case ok:
		return ""
	case c.hash != nil:
		return fmt.Sprintf("has %s in the file; only text, whole numbers and bools are hashed", valueNames[col.Kind])
	}
	return fmt.Sprintf("has %s in the file, which do not become %s; choose another dtype", valueNames[col.Kind], c.dtype)
}

func wholeNumbers(k sources.ValueKind) bool {
	return k == sources.Int32Values || k == sources.Int64Values || k == sources.Uint64Values
}

// converted are the values of one dictionary as a column's elements.
type converted[D element] struct {
	dict *sources.Dictionary
	vals []D      // by entry
	errs []string // by entry; nil: none is bad
	room []D      // for vals, unless they lie in the dictionary
	// tiny or short has the same numbers as vals in fewer bytes, so that more of them lie in the
	// processor's cache. Both are empty if vals are no int64, too few, or too large.
	tiny  []uint16
	short []int32
}

// leastShort: a dictionary of fewer values lies in the fastest cache as it is.
const leastShort = 1 << 11

// shorten makes tiny or short of vals. The next dictionary uses their memory.
func (known *converted[D]) shorten() {
	known.tiny, known.short = known.tiny[:0], known.short[:0]
	vals, ok := any(known.vals).([]int64)
	if !ok || len(vals) < leastShort {
		return
	}
	if fits(&known.tiny, vals) {
		return
	}
	fits(&known.short, vals)
}

// fits makes to the same numbers as vals, or empty if it cannot hold one of them.
func fits[S uint16 | int32](to *[]S, vals []int64) bool {
	all := slices.Grow(*to, len(vals))[:len(vals)]
	*to = all[:0]
	for i, v := range vals {
		if all[i] = S(v); int64(all[i]) != v {
			return false
		}
	}
	*to = all
	return true
}

// convertValues gives the next count values of a feed as elements of the column; errs,
// unless nil, says what is wrong with each. They lie in scratch memory with room for one more.
func convertValues[D element](d *Decoder, c *column, e int, f *feed, count int) (vals []D, errs []string) {
	scratch := scratchOf[D](d, count+1)[:count]
	if count == 0 {
		return scratch, nil
	}
	if f.col.Dict == nil {
		errs = convert(c, f.col.Kind, f.col.Values, f.col.Offsets, f.value, scratch)
		return scratch, errs
	}
	known := dictionaryOf[D](c, e, f.col)
	if len(f.col.Short) > 0 {
		lookUp(scratch, known.vals, f.col.Short[f.value:f.value+count])
	} else {
		lookUp(scratch, known.vals, f.col.Entries[f.value:f.value+count])
	}
	if known.errs != nil {
		errs = make([]string, count)
		for i := range errs {
			errs[i] = known.errs[f.col.Entry(f.value+i)]
		}
	}
	return scratch, errs
}

// dictionaryOf converts the dictionary of a column, if it is not the one of the last call.
func dictionaryOf[D element](c *column, e int, col *sources.Column) *converted[D] {
	for len(c.dicts) <= e {
		c.dicts = append(c.dicts, nil)
	}
	known, _ := c.dicts[e].(*converted[D])
	if known != nil && known.dict == col.Dict {
		return known
	}
	if known == nil {
		known = &converted[D]{}
		c.dicts[e] = known
	}
	n := col.Dict.Len
	known.dict, known.errs = col.Dict, nil
	if same := valuesAs[D](col.Dict.Values); c.hash == nil && col.Kind == sameKind[D]() && len(same) >= n {
		known.vals, known.room = same[:n], nil
		known.shorten()
		return known
	}
	if cap(known.room) < n {
		known.room = make([]D, n)
	}
	known.vals = known.room[:n]
	known.errs = convert(c, col.Kind, col.Dict.Values, col.Dict.Offsets, 0, known.vals)
	known.shorten()
	return known
}

// valuesAs is b as elements, without a copy; nil if it does not lie as elements have to.
func valuesAs[D element](b []byte) []D {
	size := int(unsafe.Sizeof(*new(D)))
	at := unsafe.SliceData(b)
	if len(b) < size || uintptr(unsafe.Pointer(at))%uintptr(size) != 0 {
		return nil
	}
	return unsafe.Slice((*D)(unsafe.Pointer(at)), len(b)/size)
}

// scratchOf is room for n elements, reused by the next call.
func scratchOf[D element](d *Decoder, n int) []D {
	if cap(d.words) < n {
		d.words = make([]uint64, n)
	}
	return unsafe.Slice((*D)(unsafe.Pointer(unsafe.SliceData(d.words[:cap(d.words)]))), n)
}

// convert fills out with the values from the first on.
func convert[D element](c *column, kind sources.ValueKind, values []byte, offsets []int32, first int, out []D) (errs []string) {
	if c.hash != nil {
		hashValues(c, kind, values, offsets, first, out)
		return nil
	}
	n := len(out)
	if kind == sameKind[D]() {
		w := kind.Size()
		copy(bitsAs[byte](out), values[w*first:w*(first+n)])
		return nil
	}
	switch kind {
	case sources.BoolValues:
		for i, v := range values[first : first+n] {
			out[i] = D(v)
		}
	case sources.Int32Values:
		for i, v := range words32(values, first, n) {
			out[i] = D(int32(v))
		}
	case sources.Int64Values:
		if c.dtype == dataset.Int32 {
			return narrow(words64(values, first, n), out)
		}
		for i, v := range words64(values, first, n) {
			out[i] = D(int64(v))
		}
	case sources.Uint64Values:
		return unsigned(c, words64(values, first, n), out)
	case sources.Float32Values:
		for i, v := range words32(values, first, n) {
			out[i] = D(math.Float32frombits(v))
		}
	case sources.Float64Values:
		if c.dtype == dataset.Float32 {
			return narrowFloats(words64(values, first, n), out)
		}
		for i, v := range words64(values, first, n) {
			out[i] = D(math.Float64frombits(v))
		}
	}
	return nil
}

// sameKind is the kind of values that lie in memory as D does.
func sameKind[D element]() sources.ValueKind {
	switch any(*new(D)).(type) {
	case float64:
		return sources.Float64Values
	case float32:
		return sources.Float32Values
	case int64:
		return sources.Int64Values
	case int32:
		return sources.Int32Values
	}
	return sources.BoolValues
}

// narrow makes int32 of int64.
func narrow[D element](in []uint64, out []D) (errs []string) {
	for i, v := range in {
		if int64(v) != int64(int32(v)) {
			if errs == nil {
				errs = make([]string, len(in))
			}
			errs[i] = "is out of the range of int32"
		}
		out[i] = D(int32(v))
	}
	return errs
}

// narrowFloats makes float32 of float64. A finite number never becomes an infinite one.
func narrowFloats[D element](in []uint64, out []D) (errs []string) {
	for i, v := range in {
		if !fitsFloat32(v) {
			if errs == nil {
				errs = make([]string, len(in))
			}
			errs[i] = noFloat32
		}
		out[i] = D(math.Float64frombits(v))
	}
	return errs
}

// unsigned makes numbers of uint64.
func unsigned[D element](c *column, in []uint64, out []D) (errs []string) {
	most := uint64(math.MaxUint64) // of floats
	switch c.dtype {
	case dataset.Int32:
		most = math.MaxInt32
	case dataset.Int64:
		most = math.MaxInt64
	}
	for i, v := range in {
		if v > most {
			if errs == nil {
				errs = make([]string, len(in))
			}
			errs[i] = "is out of the range of " + c.dtype.String()
		}
		out[i] = D(v)
	}
	return errs
}

// words64 and words32 copy numbers out, because the bytes may not be aligned.
func words64(b []byte, first, n int) []uint64 {
	b = b[8*first : 8*(first+n)]
	if n == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%8 == 0 {
		return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), n)
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return out
}

func words32(b []byte, first, n int) []uint32 {
	b = b[4*first : 4*(first+n)]
	if n == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(b)))%4 == 0 {
		return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), n)
	}
	out := make([]uint32, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return out
}

// hashValues hashes text as it is, and numbers and bools as JSON writes them.
func hashValues[D element](c *column, kind sources.ValueKind, values []byte, offsets []int32, first int, out []D) {
	if kind == sources.BytesValues {
		hashTexts(c.hash, values, offsets[first:], out)
		return
	}
	var room [20]byte
	for i := range out {
		var v []byte
		switch kind {
		case sources.BoolValues:
			v = strconv.AppendBool(room[:0], values[first+i] != 0)
		case sources.Int32Values:
			v = strconv.AppendInt(room[:0], int64(int32(binary.LittleEndian.Uint32(values[4*(first+i):]))), 10)
		case sources.Uint64Values:
			v = strconv.AppendUint(room[:0], binary.LittleEndian.Uint64(values[8*(first+i):]), 10)
		default:
			v = strconv.AppendInt(room[:0], int64(binary.LittleEndian.Uint64(values[8*(first+i):])), 10)
		}
		out[i] = D(c.hash.bytes(v))
	}
}

// hashTexts hashes text where it lies, if enough bytes follow it.
func hashTexts[D element](h *hasher, values []byte, offsets []int32, out []D) {
	base := unsafe.Pointer(unsafe.SliceData(values))
	for i := range out {
		if from, to := int(offsets[i]), int(offsets[i+1]); 0 <= from && from <= to && to <= len(values)-pad {
			out[i] = D(h.remainder(h.sum(base, from, to-from)))
		} else {
			out[i] = D(h.bytes(values[from:to]))
		}
	}
}

func bitsOf[D element](v D) uint64 {
	switch v := any(v).(type) {
	case float64:
		return math.Float64bits(v)
	case float32:
		return uint64(math.Float32bits(v))
	case int32:
		return uint64(uint32(v))
	case int64:
		return uint64(v)
	case uint8:
		return uint64(v)
	}
	return 0
}

func defaultOf[D element](c *column) D {
	var v D
	switch p := any(&v).(type) {
	case *float64:
		*p = math.Float64frombits(c.defaultBits)
	case *float32:
		*p = math.Float32frombits(uint32(c.defaultBits))
	case *int32:
		*p = int32(c.defaultBits)
	case *int64:
		*p = int64(c.defaultBits)
	case *uint8:
		*p = uint8(c.defaultBits)
	}
	return v
}

// excerpt is value k as people read it.
func (f *feed) excerpt(k int) []byte {
	switch f.col.Kind {
	case sources.BytesValues:
		return f.bytes(k)
	case sources.Float32Values:
		return f.float32Text(k, 32)
	}
	values := f.col.Values
	if f.col.Dict != nil {
		values, k = f.col.Dict.Values, f.col.Entry(k)
	}
	switch f.col.Kind {
	case sources.BoolValues:
		return strconv.AppendBool(nil, values[k] != 0)
	case sources.Int32Values:
		return strconv.AppendInt(nil, int64(int32(binary.LittleEndian.Uint32(values[4*k:]))), 10)
	case sources.Int64Values:
		return strconv.AppendInt(nil, int64(binary.LittleEndian.Uint64(values[8*k:])), 10)
	case sources.Uint64Values:
		return strconv.AppendUint(nil, binary.LittleEndian.Uint64(values[8*k:]), 10)
	}
	return strconv.AppendFloat(nil, math.Float64frombits(binary.LittleEndian.Uint64(values[8*k:])), 'g', -1, 64)
}

// float32Text is value k, a float32, with as many digits as a float of so many bits needs to be
// the same number when it is read again.
func (f *feed) float32Text(k, bits int) []byte {
	values := f.col.Values
	if f.col.Dict != nil {
		values, k = f.col.Dict.Values, f.col.Entry(k)
	}
	return strconv.AppendFloat(nil, float64(math.Float32frombits(binary.LittleEndian.Uint32(values[4*k:]))), 'g', -1, bits)
}

const msPerDay = 24 * 60 * 60 * 1000

// timeRows sets the event times of rows; 0 where they are missing.
func (d *Decoder) timeRows(b *Builder, row, n int) (int, *fault) {
	src := d.eventTime.sources[0]
	f := &d.columnar.feeds[src]
	clear(b.Times[row : row+n])
	if f.col.Absent {
		return n, nil
	}
	valid, k := f.valid(n), f.value
	for i := range n {
		if valid != nil && valid[i] == 0 {
			continue
		}
		ms, ok := f.time(k)
		if !ok {
			if !d.lenient {
				return i, &fault{column: d.eventTime, source: src, value: f.excerpt(k), reason: "is not a time"}
			}
			d.eventTime.errors++
		}
		b.Times[row+i] = ms
		k++
	}
	return n, nil
}

// time is value k in ms since 1970.
func (f *feed) time(k int) (ms int64, ok bool) {
	ticks := f.col.TicksPerSecond
	if ticks == 0 {
		return parseTime(f.excerpt(k))
	}
	values := f.col.Values
	if f.col.Dict != nil {
		values, k = f.col.Dict.Values, f.col.Entry(k)
	}
	var v int64
	if f.col.Kind == sources.Int32Values {
		v = int64(int32(binary.LittleEndian.Uint32(values[4*k:])))
	} else {
		v = int64(binary.LittleEndian.Uint64(values[8*k:]))
	}
	if ticks == sources.PerDay {
		return v * msPerDay, true
	}
	per := ticks / 1000
	if ms = v / per; v%per < 0 {
		ms--
	}
	return ms, true
}
