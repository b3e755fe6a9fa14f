package agent_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/headrace/headrace/agent"
	"github.com/headrace/headrace/agent/feed"
	"github.com/headrace/headrace/internal/frame"
	"github.com/headrace/headrace/internal/proof/toymaster"
)

// wantError checks the code and words of an ERROR of the agent.
func wantError(t *testing.T, err error, code string, words ...string) {
	t.Helper()
	e, ok := errors.AsType[*frame.Error](err)
	if !ok {
		t.Fatalf("got %v, want an ERROR of the agent", err)
	}
	if e.Code != code {
		t.Errorf("the ERROR has the code %q, want %q: %v", e.Code, code, e)
	}
	for _, w := range words {
		if !strings.Contains(e.Error(), w) {
			t.Errorf("%q does not say %q", e.Error(), w)
		}
	}
}

func setUp(t *testing.T, records int) (*master, *running, map[[2]int64]int) {
	t.Helper()
	root, begins := input(t, records, records)
	m := newMaster(t, "private", fmt.Sprintf(lines, root), root)
	return m, start(t, m, socketIn(t), nil), begins
}

func TestAnotherProtocolIsRefusedNamingBothVersions(t *testing.T) {
	_, a, _ := setUp(t, 10)
	_, err := hello(a.socket, frame.Hello{Protocol: 2, Client: "headrace-python 9.9.9"})
	wantError(t, err, frame.CodeProtocol, "speaks protocol 2", "speaks 1", "9.9.9")
}

func TestAnotherJobIsRefused(t *testing.T) {
	_, a, _ := setUp(t, 10)
	_, err := hello(a.socket, frame.Hello{Job: "elsewhere"})
	wantError(t, err, frame.CodeJob, `"toy"`, `"elsewhere"`)
}

func TestOpenRefusesWhatIsNotThere(t *testing.T) {
	_, a, _ := setUp(t, 10)
	tr := must(hello(a.socket, frame.Hello{}))(t)
	defer tr.bye()
	for name, c := range map[string]struct {
		open  frame.Open
		code  string
		words []string
	}{
		"dataset": {frame.Open{Dataset: "linse", Rows: 1}, frame.CodeNotFound, []string{"linse", "there is lines"}},
		"column":  {frame.Open{Dataset: "lines", Rows: 1, Columns: []string{"nope"}}, frame.CodeInvalid, []string{`"nope"`, "id, word"}},
		"rows":    {frame.Open{Dataset: "lines"}, frame.CodeInvalid, []string{"rows is 0"}},
		"ack":     {frame.Open{Dataset: "lines", Rows: 1, Ack: "never"}, frame.CodeInvalid, []string{`"never"`}},
		"frame":   {frame.Open{Dataset: "lines", Rows: 1 << 30}, frame.CodeInvalid, []string{"over the limit"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := tr.open(1, c.open)
			wantError(t, err, c.code, c.words...)
		})
	}
}

func TestAnUnknownMessageEndsTheConnection(t *testing.T) {
	_, a, _ := setUp(t, 10)
	for _, junk := range []string{"GET / HTTP/1.1\r\n\r\n", strings.Repeat("\x00", 16), "\xff\xff\xff\xff\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"} {
		c := must(dial(a.socket))(t)
		_, err := c.Write([]byte(junk))
		check(t, err)
		var buf []byte
		h, payload, err := frame.ReadControl(c, &buf)
		check(t, err)
		e := must(frame.Decode[frame.Error](h.Type, payload))(t)
		if h.Type != frame.TypeError || e.Code != frame.CodeProtocol {
			t.Errorf("the agent answered %s %+v", h.Type, e)
		}
		if _, _, err := frame.ReadControl(c, &buf); err == nil {
			t.Error("the connection is still open")
		}
		check(t, c.Close())
	}
}

func TestAttachNeedsAHelloOfThisProcess(t *testing.T) {
	_, a, _ := setUp(t, 10)
	tr := must(hello(a.socket, frame.Hello{}))(t)
	defer tr.bye()
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 1}))(t)
	check(t, s.credit(1))
	must(s.next(0))(t)

	stranger := &stream{t: &trainer{socket: a.socket, hello: frame.Hello{Incarnation: 1}}, number: 1}
	check(t, stranger.attach())
	_, err := stranger.receive()
	wantError(t, err, frame.CodeRefused, "ATTACH before HELLO")

	twice := &stream{t: tr, number: 1}
	check(t, twice.attach())
	_, err = twice.receive()
	wantError(t, err, frame.CodeRefused, "has a data connection already")

	other := &stream{t: tr, number: 2}
	check(t, other.attach())
	_, err = other.receive()
	wantError(t, err, frame.CodeRefused, "stream 2 is not open")

	// A forked child has the incarnation of its parent, but another pid.
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "HEADRACE_TEST_TRAINER="+a.socket, "HEADRACE_TEST_ATTACH="+tr.hello.Incarnation.String())
	out, err := cmd.Output()
	check(t, err)
	if !strings.Contains(string(out), "a fork cannot share it") || !strings.Contains(string(out), "num_workers=0") {
		t.Errorf("a forked child was told %q", out)
	}
}

// attachAsFork is the main function of a process that is not the one of HELLO.
func attachAsFork(socket, incarnation string) int {
	var i frame.Incarnation
	if err := i.UnmarshalText([]byte(incarnation)); err != nil {
		return report(err)
	}
	s := &stream{t: &trainer{socket: socket, hello: frame.Hello{Incarnation: i}}, number: 1}
	if err := s.attach(); err != nil {
		return report(err)
	}
	_, err := s.receive()
	fmt.Println(err)
	return 0
}

func TestASocketPathThatIsTooLongIsRefused(t *testing.T) {
	_, err := agent.New(agent.Config{Conn: new(grpc.ClientConn), Socket: "/tmp/" + strings.Repeat("x", 200), Open: (&master{}).open})
	if err == nil || !strings.Contains(err.Error(), "Linux allows 107") {
		t.Error(err)
	}
}

func TestASecondAgentOnASocketIsRefusedAndTheFirstGoesOn(t *testing.T) {
	m, a, _ := setUp(t, 10)
	conn := m.conn()
	defer conn.Close()
	second := must(agent.New(agent.Config{Conn: conn, Socket: a.socket, Open: m.open}))(t)
	err := second.Run(t.Context())
	if !errors.Is(err, feed.ErrAgentThere) || !strings.Contains(err.Error(), a.socket) {
		t.Error(err)
	}
	tr := must(hello(a.socket, frame.Hello{}))(t)
	tr.bye()
}

func TestASocketThatADeadAgentHasLeftIsTakenOver(t *testing.T) {
	root, _ := input(t, 10, 10)
	m := newMaster(t, "shared", fmt.Sprintf(lines, root), root)
	path := socketIn(t)
	l := must(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	l.SetUnlinkOnClose(false)
	check(t, l.Close())
	a := start(t, m, path, nil)
	info := must(os.Stat(path))(t)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the socket has mode %v", info.Mode())
	}
	check(t, a.stop())
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the stopped agent has left its socket: %v", err)
	}
}

func TestWhatIsNoSocketOrNotOursIsLeftAlone(t *testing.T) {
	m, _, _ := setUp(t, 10)
	conn := m.conn()
	defer conn.Close()
	file := filepath.Join(t.TempDir(), "file")
	check(t, os.WriteFile(file, []byte("precious"), 0o600))
	open := filepath.Join(t.TempDir(), "open")
	check(t, os.Mkdir(open, 0o700))
	check(t, os.Chmod(open, 0o777))
	for path, want := range map[string]string{file: "not a socket", filepath.Join(open, "a.sock"): "can be written by others"} {
		a := must(agent.New(agent.Config{Conn: conn, Socket: path, Open: m.open}))(t)
		if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an agent on %s ended with %v, want %q", path, err, want)
		}
	}
	if text := must(os.ReadFile(file))(t); string(text) != "precious" {
		t.Error("the file was changed or removed")
	}
}

func TestARecordThatCannotBeDecodedStopsTheDatasetNamingFilePositionAndColumn(t *testing.T) {
	root := t.TempDir()
	check(t, os.WriteFile(filepath.Join(root, "bad.tsv"), []byte("1\ta\n2\tb\nthree\tc\n4\td\n"), 0o644))
	m := newMaster(t, "private", fmt.Sprintf(lines, root), root)
	a := start(t, m, socketIn(t), nil)
	tr := must(hello(a.socket, frame.Hello{}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 1, Track: true}))(t)
	check(t, s.credit(10))
	_, err := tr.expect(frame.TypeFenced) // expect returns the ERROR that comes instead
	wantError(t, err, frame.CodeFailed, "bad.tsv", "offset 8", "id", "three")
	m.until("a permanent failure", func(toy *toymaster.Master) bool {
		return len(toy.Fails) == 1 && toy.Fails[0].Permanent && toy.Fails[0].Kind == "decode" && toy.Fails[0].At == 8
	})
	tr.bye()
}

func TestAFileThatChangedAfterItWasPlannedStopsTheDataset(t *testing.T) {
	root, _ := input(t, 100, 100)
	m := newMaster(t, "private", fmt.Sprintf(lines, root), root)
	check(t, os.WriteFile(filepath.Join(root, "part-000.tsv"), []byte("1\tshort\n"), 0o644))
	a := start(t, m, socketIn(t), nil)
	tr := must(hello(a.socket, frame.Hello{}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: 1, Track: true}))(t)
	check(t, s.credit(10))
	_, err := tr.expect(frame.TypeFenced)
	wantError(t, err, frame.CodeFailed, "part-000.tsv", "changed after it was planned")
	m.until("a permanent failure", func(toy *toymaster.Master) bool {
		return len(toy.Fails) == 1 && toy.Fails[0].Permanent && toy.Fails[0].Kind == "changed"
	})
	tr.bye()
}

func TestAnAgentThatTheMasterTurnsAwayEnds(t *testing.T) {
	root, _ := input(t, 10, 10)
	m := newRealMaster(t, "shared", fmt.Sprintf(lines, root), root, time.Second)
	conn := m.conn()
	defer conn.Close()
	a := must(agent.New(agent.Config{Name: "node", Job: "another", Conn: conn, Socket: socketIn(t), Open: m.open}))(t)
	if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), `"another"`) {
		t.Error(err)
	}
}
