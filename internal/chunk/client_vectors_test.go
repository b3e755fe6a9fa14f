package chunk

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"testing"
)

const chunksPath = "../../api/vectors/chunks.json"

// chunkVectors is api/vectors/chunks.json: the chunks that clients in other languages must make, too. Bytes are
// base64.
type chunkVectors struct {
	Chunks []struct {
		Name    string
		Records []struct {
			Key     []byte `json:",omitempty"` // absent: none
			Value   []byte // null: the record has none
			Time    int64  `json:",omitempty"`
			Headers []struct{ Key, Value []byte }
		}
		Chunk []byte // codec 0
	}
	Keys []struct {
		Pointer string
		Record  []byte
		Key     []byte // null: the record has no key
		Error   bool   // the record is no JSON
	}
	Partitions []struct {
		Key        []byte
		Partitions int
		Partition  int
	}
}

func TestTheChunksOfWritersHold(t *testing.T) {
	b, err := os.ReadFile(chunksPath)
	if err != nil {
		t.Fatal(err)
	}
	var v chunkVectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for i := range v.Chunks {
		c := &v.Chunks[i]
		var b Builder
		for _, r := range c.Records {
			rec := Record{Key: r.Key, Value: r.Value, Null: r.Value == nil, Time: r.Time}
			for _, h := range r.Headers {
				rec.Headers = append(rec.Headers, Field{h.Key, h.Value})
			}
			b.Add(rec)
		}
		c.Chunk = header(None, b.Records(), len(b.raw), b.raw)
		o, err := Open(c.Chunk)
		if err != nil {
			t.Fatalf("%s: %v", c.Name, err)
		}
		for k, r := range c.Records {
			if got := o.Record(k); !bytes.Equal(got.Key, r.Key) || !bytes.Equal(got.Value, r.Value) || got.Time != r.Time || len(got.Headers) != len(r.Headers) {
				t.Errorf("%s: record %d is %+v", c.Name, k, got)
			}
		}
	}
	for i := range v.Keys {
		k := &v.Keys[i]
		var err error
		k.Key, err = KeyOf(k.Pointer, k.Record)
		k.Error = err != nil
	}
	for i := range v.Partitions {
		p := &v.Partitions[i]
		p.Partition = PartitionOf(p.Key, p.Partitions, 0)
	}
	if *rewrite {
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(chunksPath, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s and the code disagree:\n%s\n%s", chunksPath, want, got)
	}
}
