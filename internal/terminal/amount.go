package terminal

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Amount writes an amount in a dataset's unit: bytes as KiB to PiB, anything else with
// commas.
func Amount(n int64, unit string) string {
	if unit != "bytes" {
		return Grouped(n)
	}
	f, suffix := float64(n), []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for f >= 1024 && i < len(suffix)-1 {
		f /= 1024
		i++
	}
	if i == 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, suffix[i])
}

// Grouped writes n with commas: 1,234,567.
func Grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// Percent is part of whole with one decimal, or "-" where whole is 0.
func Percent(part, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*float64(part)/float64(whole))
}

// Bar draws part of whole in width characters.
func Bar(part, whole int64, width int) string {
	full := 0
	if whole > 0 {
		full = min(width, int(float64(part)/float64(whole)*float64(width)))
	}
	return "[" + strings.Repeat("#", full) + strings.Repeat(".", width-full) + "]"
}

// Ago writes a short time to a tenth of a second.
func Ago(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(100 * time.Millisecond).String()
}

// Uptime writes a long time to the second.
func Uptime(seconds float64) string {
	return time.Duration(seconds * float64(time.Second)).Round(time.Second).String()
}
