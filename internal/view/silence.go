package view

import (
	"fmt"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

// Silence says that the source does not answer the master's questions, or not for all
// partitions.
type Silence struct {
	SinceMS int64   `json:"since_ms"` // ms since 1970, by the master's clock
	Seconds float64 `json:"seconds"`
	Reason  string  `json:"reason"` // "": its answer is still waited for
}

func silenceOf(s *headracev1.Silence) *Silence {
	if s == nil {
		return nil
	}
	return &Silence{SinceMS: s.SinceMs, Seconds: s.Seconds, Reason: s.Reason}
}

// since is when it began, and how long ago that is.
func (s *Silence) since() string {
	return fmt.Sprintf("%s (%s)", time.UnixMilli(s.SinceMS).Format("15:04:05"), time.Duration(s.Seconds*float64(time.Second)).Round(time.Second))
}

func (s *Silence) sentence() string {
	if s.Reason == "" {
		return "the source has not answered since " + s.since()
	}
	return "the source has not answered since " + s.since() + ": " + s.Reason
}
