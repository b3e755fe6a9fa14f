package link

import (
	"encoding/json"
	"flag"
	"net"
	"os"
	"testing"

	"github.com/headrace/headrace/internal/access"
)

var rewrite = flag.Bool("rewrite", false, "write api/vectors/proof.json from the code")

const vectors = "../../api/vectors/proof.json"

// proofVectors is api/vectors/proof.json: the proofs that clients in other languages must compute, too. Bytes are
// base64.
type proofVectors struct {
	Bindings []struct {
		Address []byte // 4 or 16 bytes
		Port    int
		Binding string
	}
	Proofs []struct {
		Token          string
		ID             []byte
		Client, Master []byte // the nonces
		Binding        []byte
		ByMaster       []byte
		ByClient       []byte
	}
}

func TestVectors(t *testing.T) {
	b, err := os.ReadFile(vectors)
	if err != nil {
		t.Fatal(err)
	}
	var v proofVectors
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	for i := range v.Bindings {
		c := &v.Bindings[i]
		if c.Binding, err = bindingOf(nil, &net.TCPAddr{IP: c.Address, Port: c.Port}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range v.Proofs {
		p := &v.Proofs[i]
		id := access.IDOf(p.Token)
		p.ID = id[:]
		p.ByMaster = proofOf(p.Token, "master", id, p.Client, p.Master, string(p.Binding))
		p.ByClient = proofOf(p.Token, "client", id, p.Client, p.Master, string(p.Binding))
	}
	if *rewrite {
		b, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(vectors, append(b, '\n'), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s and the code disagree:\n%s\n%s", vectors, want, got)
	}
}
