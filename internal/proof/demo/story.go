package demo

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// quiet is how often progress is printed if the output is not a terminal.
const quiet = 5 * time.Second

// story prints the output. It is safe for concurrent use.
type story struct {
	mu       sync.Mutex
	out      io.Writer
	start    time.Time
	terminal bool
	width    int
	painted  bool // the last line is a progress line
	printed  time.Time
}

func newStory(out io.Writer) *story {
	s := &story{out: out, start: time.Now(), printed: time.Now()}
	if f, ok := out.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		s.terminal, s.width = true, 100
		if w, _, err := term.GetSize(int(f.Fd())); err == nil && w > 20 {
			s.width = w
		}
	}
	return s
}

// say prints one line with the time since the start.
func (s *story) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	_, _ = fmt.Fprintf(s.out, "%s%s\n", s.stamp(), fmt.Sprintf(format, args...))
}

// plain prints text as it is.
func (s *story) plain(write func(io.Writer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clear()
	write(s.out)
}

// progress repaints the last line of a terminal. Elsewhere it prints a line every few seconds.
func (s *story) progress(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line = s.stamp() + line
	switch {
	case s.terminal:
		if len(line) >= s.width {
			line = line[:s.width-1]
		}
		s.clear()
		_, _ = io.WriteString(s.out, line)
		s.painted = true
	case time.Since(s.printed) >= quiet:
		s.printed = time.Now()
		_, _ = fmt.Fprintln(s.out, line)
	}
}

func (s *story) clear() {
	if s.painted {
		_, _ = io.WriteString(s.out, "\r\x1b[K")
		s.painted = false
	}
}

func (s *story) stamp() string { return fmt.Sprintf("[%5.1f s] ", time.Since(s.start).Seconds()) }
