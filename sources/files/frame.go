package files

import (
	"bytes"
	"fmt"
)

// framer finds where records end. It is the one place that knows.
type framer struct {
	framing Framing
	// quoteAt caches the first quote at or after a place of the buffer that is
	// being framed; -1: not looked for yet. Call reset for another buffer.
	quoteAt int
	known   bool
	wrong   string // what is wrong, if the state is damaged
}

type state uint8

const (
	complete state = iota
	cut            // the record goes on after the buffer
	inQuotes       // the same, and a quote is open
	damaged        // nothing can be framed from here on
)

// unfinished says why a record does not end where its file does.
func (f *Framing) unfinished() string {
	if f.Kind == TFRecord || f.Kind == Delimited {
		return "the record that begins here goes on after the end of the file; the file was cut short or is not written to its end yet"
	}
	return fmt.Sprintf("a field of the record that begins here opens a quote (%c) that is never closed", f.Quote)
}

func (fr *framer) reset() { fr.known = false }

// record frames the record that begins at buf[s]: buf[s:value] without its line
// end, the next one begins at next. last: nothing follows the buffer in the file.
func (fr *framer) record(buf []byte, s int, last bool) (value, next int, st state) {
	if fr.framing.Kind == Fixed {
		if next = s + fr.framing.Size; next > len(buf) {
			return 0, 0, cut
		}
		return next, next, complete
	}
	switch fr.framing.Kind {
	case TFRecord:
		return fr.tfrecord(buf, s)
	case Delimited:
		return fr.delimited(buf, s)
	}
	nl := bytes.IndexByte(buf[s:], '\n')
	if fr.framing.Kind == Quoted && fr.quote(buf, s) < lineEnd(s, nl, len(buf)) {
		return fr.quoted(buf, s, last)
	}
	if nl < 0 {
		if !last {
			return 0, 0, cut
		}
		return trimReturn(buf, s, len(buf)), len(buf), complete
	}
	return trimReturn(buf, s, s+nl), s + nl + 1, complete
}

func lineEnd(s, nl, size int) int {
	if nl < 0 {
		return size
	}
	return s + nl
}

// trimReturn takes the \r of a line end away.
func trimReturn(buf []byte, s, e int) int {
	if e > s && buf[e-1] == '\r' {
		return e - 1
	}
	return e
}

// quote is the place of the first quote at or after s; len(buf): there is none.
func (fr *framer) quote(buf []byte, s int) int {
	if !fr.known || fr.quoteAt < s {
		fr.known = true
		if i := bytes.IndexByte(buf[s:], fr.framing.Quote); i < 0 {
			fr.quoteAt = len(buf)
		} else {
			fr.quoteAt = s + i
		}
	}
	return fr.quoteAt
}

// quoted frames a record that has a quote. A quote opens a field only as its first byte. Inside
// the field, two quotes are one quote of the value. The decoder judges everything else up to
// the next delimiter, so one stray quote spoils one record and not the rest of the file.
func (fr *framer) quoted(buf []byte, s int, last bool) (value, next int, st state) {
	quote, delimiter := fr.framing.Quote, fr.framing.Delimiter
	for i := s; ; i++ { // i: the first byte of a field
		if i < len(buf) && buf[i] == quote {
			if i, st = closing(buf, i+1, quote); st != complete {
				return 0, 0, st
			}
		}
		for i < len(buf) && buf[i] != delimiter && buf[i] != '\n' {
			i++
		}
		if i >= len(buf) {
			if !last {
				return 0, 0, cut
			}
			return trimReturn(buf, s, len(buf)), len(buf), complete
		}
		if buf[i] == '\n' {
			return trimReturn(buf, s, i), i + 1, complete
		}
	}
}

// closing finds the byte after the quote that closes the field whose text
// begins at buf[i].
func closing(buf []byte, i int, quote byte) (int, state) {
	for {
		n := bytes.IndexByte(buf[i:], quote)
		if n < 0 {
			return 0, inQuotes
		}
		i += n + 1
		// At the end of buf this may be the first of two quotes. The caller finds no line
		// end after it, and asks again with more.
		if i == len(buf) || buf[i] != quote {
			return i, complete
		}
		i++
	}
}
