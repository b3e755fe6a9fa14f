package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/access"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/view"
)

const nobody = 65534

// another is another user of the same machine, with the same binary and a folder of their own. Only
// root can become another user. If the test does not run as root, another is this user without the
// job's state folder.
type another struct {
	t         *testing.T
	dir, prog string
	real      bool
}

func newAnother(t *testing.T) *another {
	t.Helper()
	dir, err := os.MkdirTemp("", "nb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &another{t: t, dir: dir, prog: filepath.Join(dir, "headrace"), real: os.Getuid() == 0}
	text, err := os.ReadFile(binary)
	if err == nil {
		err = os.WriteFile(n.prog, text, 0o755)
	}
	if err == nil && n.real {
		err = os.Chown(dir, nobody, nobody)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !n.real {
		t.Log("this test does not run as root, so the other user is this user without the job's state folder")
	}
	return n
}

func (n *another) run(args ...string) (string, error) {
	n.t.Helper()
	cmd := exec.CommandContext(n.t.Context(), args[0], args[1:]...)
	cmd.Dir, cmd.Env = n.dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=" + n.dir, "XDG_RUNTIME_DIR=" + n.dir}
	if n.real {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The user nobody attacks a master of another user on 127.0.0.1.
func TestAnotherUserOfThisMachineCannotControlTheMaster(t *testing.T) {
	w := newWorld(t)
	w.clicks(10)
	m := w.master()
	w.ok("apply", "-f", "clicks.yaml")
	at, err := link.ReadAddress(w.state())
	if err != nil {
		t.Fatal(err)
	}
	n := newAnother(t)
	token := filepath.Join(w.state(), access.OwnerFile)
	spec := filepath.Join(n.dir, "evil.yaml")
	if err := os.WriteFile(spec, []byte(strings.ReplaceAll(clicksSpec, "name: clicks", "name: evil")), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, verb := range []string{"delete clicks --yes", "pause clicks", "list", "status", "describe clicks", "apply -f " + spec} {
		out, err := n.run(append([]string{n.prog, "--master", at}, strings.Fields(verb)...)...)
		if err == nil || !strings.Contains(out, token) {
			t.Errorf("`%s` of another user got %v, want a refusal that names the token file\n%s", verb, err, out)
		}
	}
	if n.real {
		for _, path := range []string{token, filepath.Join(w.state(), access.ViewerFile), filepath.Join(w.state(), link.AddressFile)} {
			if out, err := n.run("cat", path); err == nil {
				t.Errorf("the user nobody could read %s: %d bytes", path, len(out))
			}
		}
	}
	pages := "http://" + decoded[view.Job](t, w.ok("status", "-o", "json")).HTTP
	for _, path := range []string{"/", "/metrics", "/readyz", "/debug/pprof/heap", "/debug/pprof/cmdline", "/nope"} {
		if code := statusOf(t, pages+path); code != http.StatusUnauthorized {
			t.Errorf("page %s answered %d without a token, want 401", path, code)
		}
	}
	if code := statusOf(t, pages+"/healthz"); code != http.StatusOK {
		t.Errorf("/healthz answered %d without a token, want 200", code)
	}
	if all := decoded[[]view.Dataset](t, w.ok("list", "-o", "json")); len(all) != 1 || all[0].Name != "clicks" || all[0].State != "running" {
		t.Errorf("after the attacks the datasets are %+v, want clicks running", all)
	}
	m.stop()
}

// A process without a token that speaks gRPC itself can do no more than the verbs of the binary.
func TestNoCallReachesTheMasterWithoutAToken(t *testing.T) {
	w := newWorld(t)
	m := w.master()
	at, err := link.ReadAddress(w.state())
	if err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]link.Target{
		"none": {Address: at}, "viewer": {Address: at, TokenFile: filepath.Join(w.state(), access.ViewerFile)},
	} {
		conn, err := link.Dial(target, link.TLS{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := headracev1.NewDatasetsClient(conn).Delete(t.Context(), &headracev1.DeleteRequest{Name: "x"}); err == nil || strings.Contains(err.Error(), "no dataset") {
			t.Errorf("with the token %s, a delete got %v, want a refusal", name, err)
		}
		stream, err := headracev1.NewShardsClient(conn).Session(t.Context())
		if err == nil {
			_, err = stream.Recv()
		}
		if err == nil {
			t.Errorf("with the token %s, an agent got a session", name)
		}
		_, err = headracev1.NewDatasetsClient(conn).List(t.Context(), &headracev1.ListRequest{})
		if (err == nil) != (name == "viewer") {
			t.Errorf("with the token %s, a list got %v", name, err)
		}
		_ = conn.Close()
	}
	m.stop()
}

func TestAnOlderStateFolderGetsATokenAtTheNextStart(t *testing.T) {
	w := newWorld(t)
	w.clicks(10)
	m := w.master()
	w.ok("apply", "-f", "clicks.yaml")
	m.stop()
	for _, name := range []string{access.OwnerFile, access.ViewerFile} {
		if err := os.Remove(filepath.Join(w.state(), name)); err != nil {
			t.Fatal(err)
		}
	}
	m = w.master()
	if !strings.Contains(w.ok("list"), "clicks") {
		t.Error("after the start with new tokens the dataset is gone")
	}
	m.stop()
}

// trap is an attacker's broker. It counts the connections.
func trap(t *testing.T) (addr string, came *atomic.Int64) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	came = &atomic.Int64{}
	go func() { // ends when the listener is closed
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came.Add(1)
			_ = c.Close()
		}
	}()
	return l.Addr().String(), came
}

const trapSpec = `name: trap
kafka: {brokers: ["%s"], topic: t, sasl: {mechanism: plain, user: u, %s}}
decode: lines
`

// A person with the role operator may apply specs, but must not get the master's secrets.
func TestASpecCannotSendTheMastersSecretsToABrokerOfItsOwn(t *testing.T) {
	const password = "the-password-of-the-real-broker"
	w := newWorld(t)
	w.write("pw", password)
	addr, came := trap(t)
	w.env = append(w.env, "HEADRACE_KAFKA_PASSWORD="+password)
	m := w.master("--log-level", "debug")
	for _, secret := range []string{"password_env: HEADRACE_KAFKA_PASSWORD", "password_file: " + w.path("pw")} {
		w.write("trap.yaml", fmt.Sprintf(trapSpec, addr, secret))
		if r := w.run("apply", "-f", "trap.yaml"); r.code == exitOK || !strings.Contains(r.err, "--allow-broker "+addr) || strings.Contains(r.err, password) {
			t.Errorf("a spec with %s for another broker got %+v, want a refusal that names --allow-broker", secret, r)
		}
	}
	if n := came.Load(); n != 0 {
		t.Errorf("the master connected to the attacker's broker %d times, want never", n)
	}
	m.stop()
	if strings.Contains(m.err.String()+m.out.String(), password) {
		t.Error("the password is in the log")
	}
	m = w.master("--allow-broker", addr)
	if r := w.run("apply", "-f", "trap.yaml"); strings.Contains(r.err, "--allow-broker") {
		t.Errorf("a broker that --allow-broker lists was refused: %+v", r)
	}
	if came.Load() == 0 {
		t.Error("the master did not connect to a broker that --allow-broker lists")
	}
	m.stop()
}

func TestAConnectionOfTheSettingsIsUsedByNameAndNeverShown(t *testing.T) {
	const password = "the-password-of-the-real-broker"
	w := newWorld(t)
	w.write("pw", password)
	addr, came := trap(t)
	w.write("headrace.yaml", fmt.Sprintf("connections:\n  main:\n    kafka: {brokers: [\"%s\"], sasl: {mechanism: plain, user: u, password_file: %s}}\n", addr, w.path("pw")))
	m := w.master("--log-level", "debug")
	w.write("spec.yaml", "name: clicks\nkafka: {connection: main, topic: t}\ndecode: lines\n")
	r := w.run("apply", "-f", "spec.yaml")
	if came.Load() == 0 || strings.Contains(r.err, "connection main") {
		t.Errorf("the connection was not used: %+v", r)
	}
	w.write("spec.yaml", "name: clicks\nkafka: {connection: man, topic: t}\ndecode: lines\n")
	wrong := w.run("apply", "-f", "spec.yaml")
	if wrong.code == exitOK || !strings.Contains(wrong.err, "did you mean main?") {
		t.Errorf("an unknown connection got %+v, want the hint at main", wrong)
	}
	said := r.err + r.out + wrong.err + wrong.out + w.ok("status", "-o", "json") + w.ok("list", "-o", "json")
	_, heap := w.page("http://" + decoded[view.Job](t, w.ok("status", "-o", "json")).HTTP + "/debug/pprof/cmdline")
	m.stop()
	if strings.Contains(said+heap+m.err.String()+m.out.String(), password) {
		t.Error("an output, the log or a page has the password")
	}
}
