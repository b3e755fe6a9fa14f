package dataset

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

var sizeUnits = []struct {
	suffix string
	shift  uint
}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"B", 0}}

// ParseSize reads "4096", "256KiB", "64 MiB", "1GiB", "2TiB".
func ParseSize(text string) (Size, error) {
	digits, shift := strings.TrimSpace(text), uint(0)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(digits, u.suffix); ok {
			digits, shift = strings.TrimRight(rest, " "), u.shift
			break
		}
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("is not a size: write a whole number, or one with KiB, MiB, GiB or TiB, as in 256KiB")
	}
	if n < 0 {
		return 0, fmt.Errorf("is negative")
	}
	if n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("does not fit in 64 bits")
	}
	return Size(n << shift), nil
}

// String writes the largest unit that loses nothing.
func (s Size) String() string {
	for _, u := range []int{3, 2, 1, 0} {
		unit := sizeUnits[u]
		if n := int64(s) >> unit.shift; n > 0 && n<<unit.shift == int64(s) {
			return strconv.FormatInt(n, 10) + unit.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// ParseDuration reads what time.ParseDuration does: 500ms, 2s, 10m, 1h30m.
func ParseDuration(text string) (Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(text))
	if err != nil {
		return 0, fmt.Errorf("is not a duration: write a number with its unit, as in 500ms, 2s, 10m or 1h30m")
	}
	return Duration(d), nil
}

func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes the form that people write.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

func (d *Duration) UnmarshalJSON(text []byte) error {
	var s string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	v, err := ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q %w", s, err)
	}
	*d = v
	return nil
}
