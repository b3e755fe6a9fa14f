package frame

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"
)

func TestAControlMessageIsReadAsItWasWritten(t *testing.T) {
	step := int64(130)
	hello := Hello{Protocol: Protocol, Client: "test 1", Rank: 3, WorldSize: 4, Incarnation: 0x0123456789abcdef, Generation: 2, Resume: []ResumeEntry{{
		Stream: 1, Open: Open{Dataset: "clicks", Rows: 1024, Ack: AckStep, Track: true}, Through: 17, Acked: 12,
		Batches: []ResumeBatch{{Number: 13, Step: &step, Rows: 1024, Spans: []ResumeSpan{
			{1, 2, 1<<64 - 1, 4, 5, 6, 7, 8, 1<<63 - 1, 0, 0, 0, false}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -11, 12, true},
		}}, {Number: 14, Rows: 3}},
	}}}
	var wire bytes.Buffer
	if err := WriteControl(&wire, TypeHello, 0, 0, hello); err != nil {
		t.Fatal(err)
	}
	if err := WriteControl(&wire, TypeCredit, 1, 2, nil); err != nil {
		t.Fatal(err)
	}
	var buf []byte
	r := iotest.OneByteReader(&wire)
	h, payload, err := ReadControl(r, &buf)
	if err != nil || h.Type != TypeHello {
		t.Fatal(h, err)
	}
	got, err := Decode[Hello](h.Type, payload)
	if err != nil || !reflect.DeepEqual(got.Resume[0].Batches[0], hello.Resume[0].Batches[0]) || got.Incarnation != hello.Incarnation {
		t.Fatalf("%+v, %v", got, err)
	}
	if !bytes.Contains(payload, []byte(`"incarnation":"0123456789abcdef"`)) || !bytes.Contains(payload, []byte(`"spans":[[1,2,18446744073709551615,4,5,6,7,8,9223372036854775807],[1,2,3,4,5,6,7,8,9,10,-11,12]]`)) {
		t.Errorf("the payload lacks the incarnation or the spans: %s", payload)
	}
	if h, payload, err = ReadControl(r, &buf); err != nil || h.Type != TypeCredit || h.Number != 2 || len(payload) != 0 {
		t.Fatal(h, payload, err)
	}
	if _, _, err = ReadControl(r, &buf); err != io.EOF {
		t.Fatalf("got %v, want %v", err, io.EOF)
	}
}

func TestWhatIsNoMessageIsRefused(t *testing.T) {
	header := func(h Header) string {
		var b [HeaderSize]byte
		h.Put(&b)
		return string(b[:])
	}
	for name, c := range map[string]struct {
		wire, want string
		protocol   bool
	}{
		"unknown type":   {header(Header{Type: 99}), "unknown message type 99", true},
		"type 0":         {header(Header{}), "unknown message type 0", true},
		"flags":          {header(Header{Type: TypePing, Flags: 1}), "PING has flags 0x1", true},
		"too long":       {header(Header{Type: TypeStep, Length: maxControl + 1}), "STEP of 1048577 bytes is longer than the limit", true},
		"frame too long": {header(Header{Type: TypeFrame, Length: MaxFrame + 1}), "FRAME of 1073741825 bytes", true},
		"a frame":        {header(Header{Type: TypeFrame}), "FRAME on a control connection", true},
		"half a header":  {header(Header{Type: TypePing})[:7], "unexpected EOF", false},
		"half a payload": {header(Header{Type: TypePing, Length: 9}) + "{}", "unexpected EOF", false},
		"no payload":     {header(Header{Type: TypePing, Length: 9}), "unexpected EOF", false},
	} {
		var buf []byte
		_, _, err := ReadControl(strings.NewReader(c.wire), &buf)
		if err == nil || !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrProtocol) != c.protocol {
			t.Errorf("%s: %v, not %s", name, err, c.want)
		}
	}
	for _, payload := range []string{"", "[]", `{"rank":-1}`, `{"incarnation":"12"}`, `{"resume":[{"batches":[{"spans":[[1,2,3]]}]}]}`} {
		if _, err := Decode[Hello](TypeHello, []byte(payload)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", payload, err)
		}
	}
	if _, err := AppendControl(nil, TypeAnswer, 0, 0, Answer{Body: []byte(`"` + strings.Repeat("x", maxControl) + `"`)}); err != nil {
		t.Errorf("a cut, which may be larger than other payloads, was refused: %v", err)
	}
	if _, err := AppendControl(nil, TypeError, 0, 0, Error{Message: strings.Repeat("x", maxControl)}); err == nil {
		t.Error("a payload over the limit was written")
	}
}

func TestALengthThatIsClaimedTakesNoMemoryUntilItArrives(t *testing.T) {
	var buf []byte
	err := ReadPayload(strings.NewReader("few bytes"), Header{Type: TypeFrame, Length: MaxFrame}, &buf)
	if !errors.Is(err, io.ErrUnexpectedEOF) || cap(buf) > 4<<20 {
		t.Errorf("%v, %d bytes were allocated", err, cap(buf))
	}
}

func FuzzControl(f *testing.F) {
	good, _ := AppendControl(nil, TypeHello, 0, 0, Hello{Resume: []ResumeEntry{{Batches: []ResumeBatch{{Spans: []ResumeSpan{{}}}}}}})
	f.Add(good)
	f.Fuzz(func(t *testing.T, wire []byte) {
		var buf []byte
		h, payload, err := ReadControl(bytes.NewReader(wire), &buf)
		if err != nil {
			return
		}
		hello, err := Decode[Hello](h.Type, payload)
		if err != nil {
			return
		}
		again, err := json.Marshal(hello)
		if err != nil {
			t.Fatal(err)
		}
		if back, err := Decode[Hello](h.Type, again); err != nil || !reflect.DeepEqual(back, hello) {
			t.Fatalf("%+v\n%+v\n%v", hello, back, err)
		}
	})
}
