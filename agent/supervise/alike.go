package supervise

import (
	"bytes"
	"fmt"
	"sync"
)

// Limits: the bytes of a traceback that are held back until it is whole, and the number of errors
// that are remembered.
const (
	maxTrace  = 256 << 10
	maxTraces = 64
)

var traceback = []byte("Traceback (most recent call last):")

// alike remembers which worker has printed an error first. Ranks of a group often fail for
// one reason, and each prints the same traceback.
type alike struct {
	mu    sync.Mutex
	first map[string]string // by the error's text: the worker
}

// printed notes that a worker has that error, and gives the other worker that had it first;
// "": print it.
func (a *alike) printed(text, worker string) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if other, known := a.first[text]; known && other != worker {
		return other
	}
	if a.first == nil || len(a.first) >= maxTraces {
		a.first = map[string]string{}
	}
	a.first[text] = worker
	return ""
}

// tracer holds a traceback of one worker back until its last line, which names the error.
type tracer struct {
	alike  *alike
	worker string
	text   []byte // the lines so far; nil: no traceback
}

// line takes a line without its end. pass says what goes on instead, without a prefix;
// nil: nothing yet.
func (t *tracer) line(l []byte) (pass [][]byte) {
	switch {
	case t.text == nil && !bytes.Equal(l, traceback):
		return [][]byte{l}
	case t.text == nil, len(l) > 0 && l[0] == ' ' && len(t.text) < maxTrace:
		t.text = append(append(t.text, l...), '\n')
		return nil
	}
	text := append(append(t.text, l...), '\n')
	t.text = nil
	if other := t.alike.printed(string(text), t.worker); other != "" {
		return [][]byte{fmt.Appendf(nil, "the same error as %s: %s", other, l)}
	}
	return bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
}

// rest returns the lines that are held back of a traceback that did not end.
func (t *tracer) rest() [][]byte {
	text := t.text
	t.text = nil
	if text == nil {
		return nil
	}
	return bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n"))
}
