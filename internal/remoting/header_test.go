package remoting

import (
	"encoding/json"
	"reflect"
	"testing"
)

// Headers that brokers write take the fast path. TestHeaders and FuzzHeaders compare it with encoding/json.
func TestUsualHeadersTakeTheShortWay(t *testing.T) {
	const answer = `{"code":0,"extFields":{"suggestWhichBrokerId":"0","maxOffset":"125000","minOffset":"0","nextBeginOffset":"64"},` +
		`"flag":1,"language":"JAVA","opaque":17,"serializeTypeCurrentRPC":"JSON","version":477}`
	p := plainJSON{b: []byte(answer)}
	if c, ok := p.header(); !ok || c.Ext["nextBeginOffset"] != "64" || c.Opaque != 17 {
		t.Errorf("a broker's answer: %+v, %v", c, ok)
	}
	pull := Pull{Queue: Queue{"clicks", 3}, Group: "trainers", Offset: 1 << 40, Most: 32}.Command()
	if b, ok := pull.appendPlain(nil); !ok || !json.Valid(b) {
		t.Errorf("a pull: %s, %v", b, ok)
	}
}

// sameHeader fails if the fast path reads text differently from encoding/json.
func sameHeader(t *testing.T, text []byte) {
	t.Helper()
	p := plainJSON{b: text}
	c, ok := p.header()
	if !ok {
		return
	}
	var h answeredHeader
	if err := json.Unmarshal(text, &h); err != nil {
		t.Fatalf("%q was accepted, but is no JSON: %v", text, err)
	}
	if want := (Command{Code: h.Code, Opaque: h.Opaque, Flag: h.Flag, Remark: h.Remark, Ext: h.Ext}); !reflect.DeepEqual(c, want) {
		t.Fatalf("%q was read as %+v, want %+v", text, c, want)
	}
}

var headers = []string{
	`{}`, `{"code":1}`, `{"code":-7,"remark":"no such topic","extFields":{}}`, `{"extFields":{"a":"1"},"extFields":{"b":"2"}}`,
	`{"code":1,"code":2}`, `{"flag":0,"opaque":2147483647}`, `{"opaque":-2147483648}`,
	`{"opaque":2147483648}`, `{"code":01}`, `{"code":-}`, `{"code":1.5}`, `{"code":1e3}`, `{"code":}`, `{"code":"1"}`, `{"version":99999999999}`,
	`{"remark":"a\"b"}`, `{"remark":"é"}`, `{"remark":null}`, `{"extFields":null}`, `{"extFields":{"a":1}}`, `{"extFields":{"a":"\u0031"}}`,
	`{"Code":1}`, `{"more":{"code":2}}`, ` {"code":1}`, `{"code": 1}`, `{"code":1} `, `{"code":1}{`, `{"code":1`, `{"code":1,}`, `{,}`, `{"code"}`, `[]`, ``,
}

func TestHeaders(t *testing.T) {
	for _, text := range headers {
		sameHeader(t, []byte(text))
		var h answeredHeader
		want := json.Unmarshal([]byte(text), &h)
		if c, err := parseHeader([]byte(text)); (err == nil) != (want == nil) || err == nil && c.Code != h.Code {
			t.Errorf("%q was read as %+v (%v), want %+v (%v)", text, c, err, h, want)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	for _, text := range headers {
		f.Add([]byte(text), "topic", "clicks", "")
	}
	f.Add([]byte(`{}`), "a\"", "é\x00", "<&>")
	f.Fuzz(func(t *testing.T, text []byte, name, value, remark string) {
		sameHeader(t, text)
		c := Command{Code: len(text), Opaque: -1, Flag: 1, Remark: remark, Ext: map[string]string{name: value, "queueId": "3"}}
		b, err := c.appendHeader(nil)
		if err != nil {
			t.Fatal(err)
		}
		reference, err := json.Marshal(header{c.Code, language, version, c.Opaque, c.Flag, c.Remark, c.Ext})
		if err != nil {
			t.Fatal(err)
		}
		var got, want header
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if err := json.Unmarshal(reference, &want); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s was written, but encoding/json writes %s (%v)", b, reference, err)
		}
		sameHeader(t, b)
	})
}
