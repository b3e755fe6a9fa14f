package decode

import (
	"unicode/utf16"
	"unicode/utf8"
)

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// space is the place of the first byte at p or later that is no white space; end without one.
func (d *Decoder) space(p int) int {
	for p < d.end && isSpace(d.buf[p]) {
		p++
	}
	return p
}

// syntax notes what is wrong at p and returns -1.
func (d *Decoder) syntax(p int, reason string) int {
	if p >= d.end {
		p, reason = d.end, "bad JSON: the record ends inside a value ("+reason+")"
	} else {
		reason = "bad JSON: " + reason
	}
	d.jsonFault = &fault{at: p - d.start, value: d.buf[p:d.end], reason: reason}
	return -1
}

// stringMarks marks quotes, backslashes and control characters; the lowest mark
// is true.
func stringMarks(w uint64) uint64 {
	quote, back := w^'"'*ones, w^'\\'*ones
	return ((quote-ones)&^quote | (back-ones)&^back | (w-' '*ones)&^w) & highs
}

// plain reports that w has no mark, and no space or exclamation mark either: a
// shorter test for what most strings are.
func plain(w uint64) bool {
	back := w ^ '\\'*ones
	return ((w-'#'*ones)&^w|(back-ones)&^back)&highs == 0
}

// stringEnd is the closing quote of the string whose first byte is at p, and
// whether it has escapes; -1 on an error. Bytes beyond ASCII are noted in
// d.wide, and looked at once per record.
func (d *Decoder) stringEnd(p int) (end int, esc bool) {
	wide := uint64(0)
	for p < d.end {
		w := load(d.base, p)
		wide |= w
		m := stringMarks(w)
		if m == 0 {
			p += 8
			continue
		}
		p += lowest(m)
		if p >= d.end {
			break
		}
		switch c := d.buf[p]; {
		case c == '"':
			d.wide |= wide
			return p, esc
		case c == '\\':
			if p = d.escape(p + 1); p < 0 {
				return -1, true
			}
			esc = true
		default:
			return d.syntax(p, "a control character in a string: write it as an escape"), esc
		}
	}
	return d.syntax(d.end, "a string is not closed"), esc
}

// escape checks what follows a backslash and returns the place after it.
func (d *Decoder) escape(p int) int {
	if p >= d.end {
		return d.syntax(p, "an escape")
	}
	switch d.buf[p] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return p + 1
	case 'u':
		for i := p + 1; i < p+5; i++ {
			if i >= d.end || hexValue(d.buf[i]) > 15 {
				return d.syntax(i, "\\u takes four hex digits")
			}
		}
		return p + 5
	}
	return d.syntax(p, "there is no such escape")
}

func hexValue(c byte) uint32 {
	switch {
	case c-'0' < 10:
		return uint32(c - '0')
	case c|0x20 >= 'a' && c|0x20 <= 'f':
		return uint32(c|0x20-'a') + 10
	}
	return 16
}

// numberEnd is the end of the number at p; -1 on an error.
func (d *Decoder) numberEnd(p int) int {
	if d.buf[p] == '-' {
		p++
	}
	if p >= d.end || d.buf[p]-'0' > 9 {
		return d.syntax(p, "a number needs a digit here")
	}
	if d.buf[p] == '0' {
		p++
	} else {
		p = d.digitsEnd(p)
	}
	if p < d.end && d.buf[p] == '.' {
		q := d.digitsEnd(p + 1)
		if q == p+1 {
			return d.syntax(q, "a digit follows the point of a number")
		}
		p = q
	}
	if p < d.end && d.buf[p]|0x20 == 'e' {
		p++
		if p < d.end && (d.buf[p] == '+' || d.buf[p] == '-') {
			p++
		}
		q := d.digitsEnd(p)
		if q == p {
			return d.syntax(q, "a number's exponent needs a digit")
		}
		p = q
	}
	return p
}

func (d *Decoder) digitsEnd(p int) int {
	for p < d.end {
		if m := nonDigits(load(d.base, p)); m != 0 {
			return min(p+lowest(m), d.end)
		}
		p += 8
	}
	return d.end
}

// literal checks for true, false or null at p.
func (d *Decoder) literal(p int) (end int, k kind) {
	word, k := "null", missing
	switch d.buf[p] {
	case 't':
		word, k = "true", truth
	case 'f':
		word, k = "false", falsehood
	case 'n':
	default:
		return d.syntax(p, "a value must begin here, and this is not one"), missing
	}
	if p+len(word) > d.end || string(d.buf[p:p+len(word)]) != word {
		return d.syntax(p, "a value must begin here, and this is not one"), missing
	}
	return p + len(word), k
}

// unescape is a string with escapes as it is meant, in scratch. The scanner
// accepted it. A lone surrogate becomes U+FFFD, as in encoding/json.
func (d *Decoder) unescape(s slot) []byte {
	from := len(d.scratch)
	d.scratch = appendUnescaped(d.scratch, d.bytesOf(s))
	return d.scratch[from:]
}

func appendUnescaped(dst, b []byte) []byte {
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			dst = append(dst, b[i])
			continue
		}
		i++
		switch b[i] {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r := rune4(b[i+1:])
			i += 4
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if i+6 < len(b) && b[i+1] == '\\' && b[i+2] == 'u' {
					low = rune4(b[i+3:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
		default:
			dst = append(dst, b[i])
		}
	}
	return dst
}

func rune4(b []byte) rune {
	return rune(hexValue(b[0])<<12 | hexValue(b[1])<<8 | hexValue(b[2])<<4 | hexValue(b[3]))
}
