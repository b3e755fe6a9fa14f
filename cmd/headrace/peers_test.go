//go:build linux

package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/access"
	"github.com/headrace/headrace/internal/link"
)

// address waits until the master knows where that agent listens for other agents, and returns the address.
func (w *world) address(agent string, files link.TLS) (at string) {
	w.t.Helper()
	master, err := link.ReadAddress(w.state())
	if err != nil {
		w.t.Fatal(err)
	}
	conn, err := link.Dial(link.Target{Address: master, State: w.state()}, files)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	for deadline := time.Now().Add(long); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		r, err := headracev1.NewPeersClient(conn).List(w.t.Context(), &headracev1.ListPeersRequest{})
		if err != nil {
			w.t.Fatal(err)
		}
		for _, p := range r.Peers {
			if p.Agent == agent {
				return p.Address
			}
		}
	}
	w.t.Fatalf("the master does not know the address of agent %s", agent)
	return ""
}

func TestNobodyReadsOrReplacesACopyWithoutTheRoleOfAnAgent(t *testing.T) {
	w := newWorld(t)
	m := w.master()
	a := w.start("agent", "--name", "node-1", "--replicas", "1")
	at := w.address("node-1", link.TLS{})
	folder := &headracev1.SlotFolder{Id: "0123456789abcdef", Job: "default", Dir: "/ckpt"}
	for name, target := range map[string]link.Target{
		"nobody": {}, "viewer": {TokenFile: filepath.Join(w.state(), access.ViewerFile)}, "owner": {State: w.state()},
	} {
		conn, err := link.DialPeer(at, target, link.TLS{}, &access.Book{})
		if err != nil {
			t.Fatal(err)
		}
		c, may := headracev1.NewReplicasClient(conn), name == "owner"
		_, err = c.Look(t.Context(), &headracev1.LookRequest{Folder: folder})
		if (err == nil) != may {
			t.Errorf("Look by %s: %v, want it allowed: %v", name, err, may)
		}
		in := &headracev1.CheckRequest{Folder: folder, Rank: 1, Cut: 1}
		if _, err := c.Check(t.Context(), in); (status.Code(err) == codes.NotFound) != may {
			t.Errorf("Check by %s: %v, want it allowed (NotFound): %v", name, err, may)
		}
		fetch, err := c.Fetch(t.Context(), in)
		if err == nil {
			_, err = fetch.Recv()
		}
		if (status.Code(err) == codes.NotFound) != may {
			t.Errorf("Fetch by %s: %v, want it allowed (NotFound): %v", name, err, may)
		}
		keep, err := c.Keep(t.Context())
		if err == nil {
			_ = keep.Send(&headracev1.KeepRequest{}) // if the stream has ended, CloseAndRecv says why
			_, err = keep.CloseAndRecv()
		}
		if (status.Code(err) == codes.InvalidArgument) != may {
			t.Errorf("Keep by %s: %v, want it allowed (InvalidArgument): %v", name, err, may)
		}
		if _, err := c.Forget(t.Context(), &headracev1.ForgetRequest{Folder: folder}); (err == nil) != may {
			t.Errorf("Forget by %s: %v, want it allowed: %v", name, err, may)
		}
		_ = conn.Close()
	}
	a.stop()
	m.stop()
	w.nothingLeft()
}

func TestAPortForOtherAgentsOffLoopbackNeedsTLSAndAName(t *testing.T) {
	w := newWorld(t)
	if r := w.run("agent", "--peer-listen", "192.0.2.1:0"); r.code == exitOK || !strings.Contains(r.err, "--tls-cert") {
		t.Errorf("a peer address off loopback without TLS: %+v, want an error that names --tls-cert", r)
	}
	if r := w.run("agent", "--replicas", "1", "--peer-listen", "0.0.0.0:0"); r.code != exitUsage || !strings.Contains(r.err, "name the one by which they reach this node") {
		t.Errorf("the peer address 0.0.0.0: %+v, want an error that asks for the node's own address", r)
	}
	if r := w.run("agent", "--replicas", "2"); r.code != exitUsage || !strings.Contains(r.err, "not one of 0, 1") {
		t.Errorf("--replicas 2: %+v, want an error that names the allowed values", r)
	}
}

// Where the ends know each other by certificates only, the other end must have the role of an agent, too.
func TestAnAgentSendsNothingToACertificateThatIsNoAgents(t *testing.T) {
	w := newWorld(t)
	tls := w.certificate("node-1")
	m := w.start(append([]string{"master", "--listen", "127.0.0.1:0", "--http", "off", "--role", "agent=node-*", "--role", "viewer=node-*"}, tls...)...)
	m.until("address", w.masterThere)
	a := w.start(append([]string{"agent", "--name", "node-1", "--replicas", "1", "--role", "agent=node-*"}, tls...)...)
	files := link.TLS{Cert: tls[1], Key: tls[3], CA: tls[5]}
	at := w.address("node-1", files)
	for role, may := range map[access.Roles]bool{access.Agent: true, access.Viewer: false} {
		conn, err := link.DialPeer(at, link.Target{}, files, &access.Book{Names: []access.Entry{{Roles: role, Value: "node-*"}}})
		if err != nil {
			t.Fatal(err)
		}
		_, err = headracev1.NewReplicasClient(conn).Look(t.Context(), &headracev1.LookRequest{Folder: &headracev1.SlotFolder{Id: "0123456789abcdef", Job: "default", Dir: "/ckpt"}})
		if (err == nil) != may || !may && !strings.Contains(err.Error(), "--role agent=NAME") {
			t.Errorf("Look where the other end's role is %v: %v, want it allowed (%v), or an error that names --role agent=NAME", role, err, may)
		}
		_ = conn.Close()
	}
	a.stop()
	m.stop()
}
