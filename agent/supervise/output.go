package supervise

import (
	"bytes"
	"io"
	"sync"
	"sync/atomic"
)

// Limits of output. A longer line is cut in pieces, each with its prefix.
const (
	maxLine   = 16 << 10
	keptLines = 20 // of stderr, for the summary
)

// output is where lines of all ranks go, whole lines at a time.
type output struct {
	mu sync.Mutex
	w  io.Writer

	written *atomic.Int64 // lines, of this and other outputs on the same screen
}

// lines writes n lines, and gives how many there are with them.
func (o *output) lines(b []byte, n int) int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	_, _ = o.w.Write(b) // the reader has gone: workers go on
	return o.written.Add(int64(n))
}

// prefixed puts "[rank] ", or "[role] ", in front of each line of one worker's stream.
//
// A bar of progress, such as tqdm's, writes lines that end with \r, over each other. Each of them
// is passed on when the next one begins. They are not kept for the summary.
type prefixed struct {
	to     *output
	prefix string

	mu   sync.Mutex
	buf  []byte // prefix and an unfinished line
	back bool   // the last byte was \r: a line ends there, or an end of \r\n begins
	kept [][]byte
	keep int

	trace *tracer // of stderr
	until int64   // lines of all workers, when this one wrote its last
}

func newPrefixed(to *output, name string, keep int) *prefixed {
	p := &prefixed{to: to, prefix: "[" + name + "] ", keep: keep}
	p.buf = append(p.buf, p.prefix...)
	return p
}

// Write never fails, so that no worker dies because its output has no reader.
func (p *prefixed) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(b)
	for len(b) > 0 {
		if p.back && b[0] != '\n' {
			p.over()
		}
		p.back = false
		room := maxLine - (len(p.buf) - len(p.prefix))
		end := bytes.IndexAny(b, "\r\n")
		switch {
		case end >= 0 && end <= room && b[end] == '\r':
			p.buf = append(p.buf, b[:end]...)
			b, p.back = b[end+1:], true
			continue
		case end >= 0 && end <= room:
			p.buf = append(p.buf, b[:end]...)
			b = b[end+1:]
		case len(b) <= room:
			p.buf = append(p.buf, b...)
			return n, nil
		default:
			p.buf = append(p.buf, b[:room]...)
			b = b[room:]
		}
		p.emit()
	}
	return n, nil
}

// over passes on a line over which the next one is written.
func (p *prefixed) over() {
	if len(p.buf) > len(p.prefix) {
		p.buf = append(p.buf, '\r')
		p.until = p.to.lines(p.buf, 0)
	}
	p.buf = p.buf[:len(p.prefix)]
}

// emit passes the line on and begins the next.
func (p *prefixed) emit() {
	if p.trace == nil {
		p.buf = append(p.buf, '\n')
		p.until = p.to.lines(p.buf, 1)
	} else {
		p.pass(p.trace.line(p.buf[len(p.prefix):]))
		p.buf = append(p.buf, '\n')
	}
	if p.keep > 0 {
		if len(p.kept) == p.keep {
			copy(p.kept, p.kept[1:])
			p.kept = p.kept[:p.keep-1]
		}
		p.kept = append(p.kept, bytes.Clone(p.buf[len(p.prefix):len(p.buf)-1]))
	}
	p.buf = p.buf[:len(p.prefix)]
}

// pass writes lines together, so that those of another worker do not come between them.
func (p *prefixed) pass(lines [][]byte) {
	if len(lines) == 0 {
		return
	}
	var b []byte
	for _, l := range lines {
		b = append(append(append(b, p.prefix...), l...), '\n')
	}
	p.until = p.to.lines(b, len(lines))
}

// flush passes on an unfinished line, and a traceback that did not end.
func (p *prefixed) flush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.buf) > len(p.prefix) {
		p.emit()
	}
	if p.trace != nil {
		p.pass(p.trace.rest())
	}
}

// last gives the last lines.
func (p *prefixed) last() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	lines := make([]string, 0, len(p.kept))
	for _, l := range p.kept {
		lines = append(lines, string(l))
	}
	return lines
}
