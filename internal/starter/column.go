package starter

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// stats counts what the values of a field are.
type stats struct {
	total, missing, others int // others: objects in lists, and the like
	ints, floats, bools    int
	texts, times, words    int
	letters, digits        int // letters of texts; most digits of a float
	zeros, ones            int
	sum, squares           float64
	distinct               map[string]struct{}
	ragged                 bool
	spaced                 int  // texts that would be numbers without their spaces
	clock                  bool // a time, by its type
	real                   bool // floats, by its type, even if all of them are whole
	single                 bool // float32, by its type
	unsigned               bool // uint64, by its type
	large                  int  // of floats: whole numbers that int64 does not hold
	wide                   bool // some are too large for float32
}

func (s *stats) value(v any) {
	switch v := v.(type) {
	case nil:
		s.total++
		s.missing++
	case bool:
		s.total++
		s.bools++
		s.remember(strconv.FormatBool(v))
	case json.Number:
		s.number(v.String())
	case string:
		s.total++
		s.word(v)
	case float32:
		s.real, s.single = true, true
		s.number(strconv.FormatFloat(float64(v), 'f', -1, 32))
	case float64:
		s.real = s.real || !s.unsigned
		s.number(strconv.FormatFloat(v, 'f', -1, 64))
	case int32, int64:
		s.number(fmt.Sprint(v))
	case map[string]any, []any:
		s.total++
		s.others++
	default:
		s.total++
		s.word(fmt.Sprint(v))
	}
}

// cell counts a decoded value. Of a list it counts each element.
func (s *stats) cell(v any) {
	if elements, ok := v.([]any); ok {
		for _, e := range elements {
			s.value(e)
		}
		return
	}
	switch v {
	case "NaN", "+Inf", "-Inf": // of a float
		s.number(v.(string))
		return
	}
	s.value(v)
}

// text counts a value between delimiters.
func (s *stats) text(v string) {
	switch v {
	case "":
		s.total++
		s.missing++
		return
	case "true", "True", "TRUE", "false", "False", "FALSE":
		s.total++
		s.bools++
		s.remember(strings.ToLower(v))
		return
	}
	if isNumber(v) && strings.TrimSpace(v) == v {
		s.number(v)
		return
	}
	if isNumber(v) {
		s.spaced++
	}
	s.total++
	s.word(v)
}

func (s *stats) number(v string) {
	s.total++
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		s.word(v)
		return
	}
	_, err = strconv.ParseInt(v, 10, 64)
	if err == nil {
		s.ints++
	} else {
		s.floats++
		if errors.Is(err, strconv.ErrRange) {
			s.large++
		}
	}
	if err != nil || s.real {
		mantissa, _, _ := strings.Cut(strings.ToLower(v), "e")
		s.digits = max(s.digits, digitsOf(mantissa))
	}
	switch f {
	case 0:
		s.zeros++
	case 1:
		s.ones++
	}
	if !math.IsNaN(f) && !math.IsInf(f, 0) {
		s.sum += f
		s.squares += f * f
		s.wide = s.wide || math.Abs(f) > math.MaxFloat32
	}
	if f > 1e9 && f < 1e14 { // s or ms since 1970
		s.times++
	}
	s.remember(v)
}

// digitsOf counts the digits that a float has to hold.
func digitsOf(mantissa string) int {
	digits := strings.Trim(mantissa, "+-")
	if strings.Contains(digits, ".") {
		digits = strings.Replace(digits, ".", "", 1)
	} else {
		digits = strings.TrimRight(digits, "0")
	}
	return len(strings.TrimLeft(digits, "0"))
}

func (s *stats) word(v string) {
	s.texts++
	s.letters += len(v)
	s.words += len(strings.Fields(v))
	if _, err := time.Parse(time.RFC3339Nano, v); err == nil {
		s.times++
	}
	s.remember(v)
}

func (s *stats) remember(v string) {
	if s.distinct == nil {
		s.distinct = map[string]struct{}{}
	}
	s.distinct[v] = struct{}{}
}

func (s *stats) there() int    { return s.ints + s.floats + s.bools + s.texts }
func (s *stats) numbers() bool { return s.texts == 0 && s.bools == 0 && s.ints+s.floats > 0 }

// yesNo reports whether all values are two words for yes and no, which no column reads as a bool.
func (s *stats) yesNo() bool {
	for v := range s.distinct {
		switch strings.ToLower(v) {
		case "yes", "no", "y", "n", "t", "f", "on", "off":
		default:
			return false
		}
	}
	return len(s.distinct) == 2 && s.ints+s.floats+s.bools == 0
}

// role is what a program does with a column.
type role int

const (
	number role = iota
	id          // hashed
	text        // left as it is; the program does not use it
	list        // ragged, likewise
	label
)

// column is one column of the spec.
type column struct {
	name, path, dtype string
	unsigned          bool   // uint64, by the file's type
	buckets           int    // 0: not hashed
	fill              string // its default; "": none
	comment           string
	role              role
	mean, scale       float64 // of a number, in the records that were looked at
	binary            bool    // a number or bool that is 0 or 1
}

var (
	idName    = regexp.MustCompile(`(?i)(^|[_ .-])(u?u?id|key|code|zip|zipcode|user|item|ad|campaign|advertiser|device|session|ip|product|sku|store|shop|publisher|site|member|account)s?([_ .-]|$)`)
	idCamel   = regexp.MustCompile(`[a-z](Id|ID)$`)
	timeName  = regexp.MustCompile(`(?i)(^|[_ .-])(ts|time|timestamp|at|date|datetime|when)([_ .-]|$)|(?i)(time|timestamp)$`)
	labelName = regexp.MustCompile(`(?i)^(is_?)?(label|target|y|click|clicked|convert|converted|conversion|purchase|purchased|bought|outcome|response|rating|fraud|survived|class)$`)
	notWord   = regexp.MustCompile(`[^A-Za-z0-9_]+`)
)

// columnOf makes a column of a field. ok is false if the field has no value, or one that no column
// can hold, such as an object in a list.
func columnOf(f *field, i int) (c column, ok bool) {
	s := &f.seen
	c = column{name: columnName(f.name, i), path: f.path, unsigned: s.unsigned, scale: 1}
	if s.there() == 0 || s.others > 0 {
		return c, false
	}
	if s.missing > 0 {
		c.comment = fmt.Sprintf("missing in %d of %d records", s.missing, s.total)
	}
	isID := idName.MatchString(f.name) || idCamel.MatchString(f.name)
	switch {
	case s.bools > 0 && s.texts == 0 && s.ints+s.floats == 0:
		c.dtype, c.role, c.binary = "bool", number, true
	case s.numbers() && s.real:
		if c.number(s); isID && s.floats == 0 {
			c.comment = strings.TrimPrefix(c.comment+"; floats are not hashed. If it is an id, write whole numbers", "; ")
		}
	case s.numbers() && s.large > 0 && s.large == s.floats: // all of them are whole; some are too large for int64
		c.hashed(len(s.distinct))
	case s.numbers() && !(isID && s.floats == 0 && len(s.distinct) > 2):
		c.number(s)
	case s.texts > 0 && (s.letters > 40*s.texts || s.words > 3*s.texts) && !isID:
		c.dtype, c.role = "string", text
		return c, true
	default:
		c.hashed(len(s.distinct))
	}
	if s.ragged {
		c.role = list
	}
	if s.missing > 0 {
		c.fillIn()
	}
	return c, true
}

func (c *column) number(s *stats) {
	c.role, c.dtype = number, "int64"
	if s.floats > 0 || s.real {
		c.dtype = "float32"
		if s.digits > 7 && !s.single || s.wide {
			c.dtype = "float64"
		}
	}
	n := float64(s.ints + s.floats)
	c.mean = s.sum / n
	if v := s.squares/n - c.mean*c.mean; v > 0 {
		c.scale = math.Sqrt(v)
	}
	c.binary = s.floats == 0 && s.zeros+s.ones == s.ints && s.zeros > 0 && s.ones > 0
}

// hashed makes the column an id. There are at least 20 buckets for each of up to 5,000 values.
func (c *column) hashed(distinct int) {
	c.role, c.dtype, c.buckets = id, "int64", 100_000
	switch {
	case distinct <= 50:
		c.buckets = 1_000
	case distinct <= 500:
		c.buckets = 10_000
	}
}

// fillIn sets the default for missing values.
func (c *column) fillIn() {
	switch {
	case c.dtype == "string", c.dtype == "bytes":
		c.fill = `""`
	case c.dtype == "bool":
		c.fill = "false"
	default:
		c.fill = "0"
	}
}

func columnName(name string, i int) string {
	name = strings.Trim(notWord.ReplaceAllString(name, "_"), "_")
	if name == "" {
		return "f" + strconv.Itoa(i)
	}
	if name[0] >= '0' && name[0] <= '9' {
		return "f_" + name
	}
	return name
}

// isEventTime reports whether the field is the time of its record.
func isEventTime(f *field) bool {
	s := &f.seen
	if s.clock && !s.ragged {
		return true
	}
	return timeName.MatchString(f.name) && !s.ragged && s.there() > 0 && s.times == s.there()
}

// labelOf picks the column that the program predicts; -1: none.
func labelOf(columns []column, fields []*field) int {
	best, rank := -1, 0
	for i, c := range columns {
		r := 0
		switch {
		case c.role != number:
			continue
		case labelName.MatchString(fields[i].name):
			r = 4
		case c.binary:
			r = 3
		case c.dtype != "int64":
			r = 2
		default:
			r = 1
		}
		if r > rank || r == rank && r < 3 { // among ordinary numbers, the last one
			best, rank = i, r
		}
	}
	return best
}
