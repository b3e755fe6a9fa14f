package chunk

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write api/vectors/landing.json")

const vectorsPath = "../../api/vectors/landing.json"

type keyVector struct {
	Pointer   string  `json:"pointer"`
	RecordHex string  `json:"record_hex"`
	Error     bool    `json:"error,omitempty"`
	KeyHex    *string `json:"key_hex"` // null: none
	Of7       int     `json:"partition_of_7"`
}

type recordVector struct {
	KeyHex   *string     `json:"key_hex"`
	ValueHex *string     `json:"value_hex"` // null: the value is null
	Time     int64       `json:"time"`
	Headers  [][2]string `json:"headers_hex"`
	RawHex   string      `json:"raw_hex"` // its bytes in a chunk
}

// firstVector is a transaction's id, and the partition of its first record without a key.
type firstVector struct {
	ID    string `json:"id"`
	First int    `json:"first"`
}

type vectors struct {
	About   string         `json:"about"`
	Keys    []keyVector    `json:"keys"`
	Records []recordVector `json:"records"`
	Firsts  []firstVector  `json:"firsts"`
}

func hexed(b []byte) *string {
	if b == nil {
		return nil
	}
	s := hex.EncodeToString(b)
	return &s
}

// Writers in all languages must agree on the key and partition of a record, and on its bytes.
func TestTheVectorsOfWritersHold(t *testing.T) {
	v := vectors{About: "docs/LANDING.md, The form of a chunk; the key of a record is what landing.key points to"}
	for _, c := range []struct{ pointer, record string }{
		{"/user", `{"user":"anna"}`}, {"/user", ` {"a": [1, {"user": 2}], "user" : 12.50 } `}, {"/user", `{"user":null}`},
		{"/user", `{"other":1}`}, {"/user", `{"user":"a","user":"b"}`}, {"/user", `{"user":{"x": [1,  2]}}`}, {"/user", `{"user":true}`},
		{"/user", `{"user":"\u00e4\ud83d\ude00\n"}`}, {"/user", `{"user":"\ud800x"}`}, {"/user", "{\"user\":\"\xff\xfe\"}"}, {"/user", `{"user":""}`},
		{"/user", `{"user":123456789012345678901234567890}`}, {"/user", `{"user":1e400}`}, {"/user", `{"user":-0.0}`},
		{"/a/1/b", `{"a":[0,{"b":"deep"}]}`}, {"/a/7", `{"a":[0]}`}, {"/a/x", `{"a":[0]}`}, {"/a/b", `{"a":null}`}, {"/a~1b/m~0n", `{"a/b":{"m~n":7}}`},
		{"/0", `["first"]`}, {"/", `{"":"empty name"}`}, {"/user", `{}`}, {"/user", `null`},
		{"/user", `{`}, {"/user", `5`}, {"/user", ``}, {"/user", `{"user":NaN}`}, {"/user", `{"user":1} x`}, {"/a/b", `{"a":"text"}`}, {"/user", `{"user":01}`}, {"/user", "{\"user\":\"\n\"}"},
	} {
		k, err := KeyOf(c.pointer, []byte(c.record))
		v.Keys = append(v.Keys, keyVector{Pointer: c.pointer, RecordHex: hex.EncodeToString([]byte(c.record)), Error: err != nil, KeyHex: hexed(k), Of7: PartitionOf(k, 7, 3)})
	}
	long := make([]byte, 300)
	for _, r := range []Record{
		{Value: []byte("v")}, {Value: []byte{}}, {Null: true}, {Key: []byte("k"), Null: true}, {Key: []byte{}, Value: []byte("v")}, {Key: long, Value: long},
		{Value: []byte("v"), Time: 1_764_000_000_000}, {Value: []byte("v"), Time: -1}, {Value: []byte("v"), Time: -64},
		{Key: []byte("k"), Value: []byte("v"), Time: 63, Headers: []Field{{[]byte("name"), []byte{0, 255}}, {[]byte("ä"), []byte{}}}},
	} {
		x := recordVector{KeyHex: hexed(r.Key), ValueHex: hexed(r.Value), Time: r.Time, Headers: [][2]string{}, RawHex: hex.EncodeToString(r.append(nil))}
		for _, h := range r.Headers {
			x.Headers = append(x.Headers, [2]string{hex.EncodeToString(h.Key), hex.EncodeToString(h.Value)})
		}
		v.Records = append(v.Records, x)
	}
	of7 := map[int]bool{}
	for _, id := range []string{"push-1", "push-2", "push-3", "push-4", "job/7", "ä"} {
		v.Firsts = append(v.Firsts, firstVector{id, FirstOf(id)})
		of7[PartitionOf(nil, 7, FirstOf(id))] = true
	}
	if len(of7) < 3 {
		t.Errorf("transactions of one record without a key go to %d of 7 partitions", len(of7))
	}
	text, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	if *rewrite {
		if err := os.WriteFile(vectorsPath, append(text, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if stored, err := os.ReadFile(vectorsPath); err != nil || string(stored) != string(text)+"\n" {
		t.Errorf("api/vectors/landing.json and the code disagree: %v", err)
	}
}
