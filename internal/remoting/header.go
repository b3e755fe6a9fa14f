package remoting

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// By default a broker gives 32 messages in an answer, so for every 32 messages one header is
// written and one is read. With encoding/json that was a seventh of the agent's CPU. Nearly all
// headers take the short ways below, and encoding/json takes the others.

type header struct {
	Code     int               `json:"code"`
	Language string            `json:"language"`
	Version  int               `json:"version"`
	Opaque   int32             `json:"opaque"`
	Flag     int               `json:"flag"`
	Remark   string            `json:"remark,omitempty"`
	Ext      map[string]string `json:"extFields,omitempty"`
}

// answeredHeader is a header that was read: a server's language is not a fixed text, and
// may be missing.
type answeredHeader struct {
	Code   int               `json:"code"`
	Opaque int32             `json:"opaque"`
	Flag   int               `json:"flag"`
	Remark string            `json:"remark"`
	Ext    map[string]string `json:"extFields"`
}

// appendHeader appends c's header in JSON.
func (c *Command) appendHeader(b []byte) ([]byte, error) {
	if all, ok := c.appendPlain(b); ok {
		return all, nil
	}
	h, err := json.Marshal(header{c.Code, language, version, c.Opaque, c.Flag, c.Remark, c.Ext})
	if err != nil {
		return nil, err
	}
	return append(b, h...), nil
}

// appendPlain is appendHeader for a header without a remark whose texts need no escapes.
// Otherwise it returns false.
func (c *Command) appendPlain(b []byte) ([]byte, bool) {
	if c.Remark != "" {
		return b, false
	}
	b = append(b, `{"code":`...)
	b = strconv.AppendInt(b, int64(c.Code), 10)
	b = append(b, `,"language":"`+language+`","version":`...)
	b = strconv.AppendInt(b, version, 10)
	b = append(b, `,"opaque":`...)
	b = strconv.AppendInt(b, int64(c.Opaque), 10)
	b = append(b, `,"flag":`...)
	b = strconv.AppendInt(b, int64(c.Flag), 10)
	sep := `,"extFields":{"`
	for name, value := range c.Ext {
		if plainLength(name) < len(name) || plainLength(value) < len(value) {
			return b, false
		}
		b = append(append(append(b, sep...), name...), `":"`...)
		b = append(append(b, value...), '"')
		sep = `,"`
	}
	if len(c.Ext) > 0 {
		b = append(b, '}')
	}
	return append(b, '}'), true
}

// plainLength is how many bytes at the beginning of s stand for themselves in a JSON string.
func plainLength[T string | []byte](s T) int {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return i
		}
	}
	return len(s)
}

// parseHeader reads a header in JSON.
func parseHeader(text []byte) (Command, error) {
	p := plainJSON{b: text}
	if h, ok := p.header(); ok {
		return h, nil
	}
	var h answeredHeader
	if err := json.Unmarshal(text, &h); err != nil {
		return Command{}, fmt.Errorf("%w: header: %w", errFrame, err)
	}
	return Command{Code: h.Code, Opaque: h.Opaque, Flag: h.Flag, Remark: h.Remark, Ext: h.Ext}, nil
}

// plainJSON reads a header as brokers write it: the fields that are known, no space, no escape,
// no null. For all others it returns false, also for those that are no JSON.
type plainJSON struct {
	b  []byte
	at int
}

func (p *plainJSON) header() (c Command, ok bool) {
	ok = p.object(func(name []byte) (ok bool) {
		var n int64
		switch string(name) {
		case "code":
			n, ok = p.number()
			c.Code = int(n)
		case "opaque":
			n, ok = p.number()
			c.Opaque = int32(n)
		case "flag":
			n, ok = p.number()
			c.Flag = int(n)
		case "version":
			_, ok = p.number()
		case "language", "serializeTypeCurrentRPC":
			_, ok = p.text()
		case "remark":
			var text []byte
			text, ok = p.text()
			c.Remark = string(text)
		case "extFields":
			if c.Ext == nil {
				c.Ext = make(map[string]string, 8)
			}
			ok = p.object(func(name []byte) bool {
				value, ok := p.text()
				c.Ext[string(name)] = string(value)
				return ok
			})
		}
		return ok
	})
	return c, ok && p.at == len(p.b)
}

// is steps over c if it is there.
func (p *plainJSON) is(c byte) bool {
	if p.at < len(p.b) && p.b[p.at] == c {
		p.at++
		return true
	}
	return false
}

// object calls field after each name and its colon. field reads the value.
func (p *plainJSON) object(field func(name []byte) bool) bool {
	if !p.is('{') {
		return false
	}
	for first := true; ; first = false {
		if first && p.is('}') {
			return true
		}
		name, ok := p.text()
		if !ok || !p.is(':') || !field(name) {
			return false
		}
		if p.is('}') {
			return true
		}
		if !p.is(',') {
			return false
		}
	}
}

func (p *plainJSON) text() ([]byte, bool) {
	if !p.is('"') {
		return nil, false
	}
	text := p.b[p.at:]
	text = text[:plainLength(text)]
	p.at += len(text)
	return text, p.is('"')
}

// number reads a whole number that fits in 32 bits.
func (p *plainJSON) number() (n int64, ok bool) {
	minus := p.is('-')
	from := p.at
	for p.at < len(p.b) && p.b[p.at]-'0' <= 9 && n <= math.MaxInt32 {
		n = 10*n + int64(p.b[p.at]-'0')
		p.at++
	}
	digits := p.at - from
	if digits == 0 || digits > 1 && p.b[from] == '0' {
		return 0, false
	}
	if minus {
		n = -n
	}
	return n, n == int64(int32(n))
}
