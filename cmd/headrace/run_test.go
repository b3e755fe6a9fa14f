package main

import (
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/view"
)

// self returns the path of this test binary, and sets the environment so that it acts as a trainer of clicks.
func (w *world) self(mode string) string {
	w.t.Helper()
	exe, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	w.env = append(w.env, trainerVariable+"=clicks", modeVariable+"="+mode)
	return exe
}

var totals = regexp.MustCompile(`rows (\d+) sum (\d+)`)

// read adds up the rows and sums that trainers have printed at their end.
func read(t *testing.T, out string) (rows, sum int64) {
	t.Helper()
	for _, m := range totals.FindAllStringSubmatch(out, -1) {
		r, _ := strconv.ParseInt(m[1], 10, 64)
		s, _ := strconv.ParseInt(m[2], 10, 64)
		rows, sum = rows+r, sum+s
	}
	return rows, sum
}

func TestRunGivesTrainersEveryRecordOnce(t *testing.T) {
	w := newWorld(t)
	const n = 5000
	w.clicks(n)
	out := w.ok("run", "-f", "clicks.yaml", "--nproc-per-node", "2", "--", w.self(""))
	if rows, sum := read(t, out); rows != n || sum != n*(n-1)/2 {
		t.Errorf("rows %d sum %d, want %d and %d\n%s", rows, sum, n, n*(n-1)/2, out)
	}
	for _, rank := range []string{"0", "1"} {
		if !regexp.MustCompile(`(?m)^\S*` + rank + `\S*.*rows \d+`).MatchString(out) {
			t.Errorf("no output line has the prefix of rank %s:\n%s", rank, out)
		}
	}
	w.nothingLeft()

	again := w.run("run", "-f", "clicks.yaml", "--", w.self(""))
	if rows, _ := read(t, again.out); again.code != exitOK || rows != 0 || !strings.Contains(again.err, "was read to its end before") {
		t.Errorf("a second run: %+v, want no rows, and that the dataset was read to its end before", again)
	}
	w.nothingLeft()
}

// An empty input is at its end at once.
func TestAnInputWithoutARecordWasNotReadBefore(t *testing.T) {
	w := newWorld(t)
	w.clicks(0)
	for _, args := range [][]string{{"run"}, {"run", "--fresh"}} {
		r := w.run(append(args, "-f", "clicks.yaml", "--", w.self(""))...)
		if rows, _ := read(t, r.out); r.code != exitOK || rows != 0 || strings.Contains(r.err, "was read to its end before") {
			t.Errorf("headrace %v over an empty file: %+v, want no rows, and nothing about an earlier run", args, r)
		}
	}
}

func TestRunBesidesAMasterAndAnAgentThatAreThere(t *testing.T) {
	w := newWorld(t)
	w.clicks(100)
	m := w.master("--job", "default")
	if r := w.run("run", "-f", "clicks.yaml", "--", w.self("")); r.code != exitUnreachable || !strings.Contains(r.err, "no agent of this machine answers") {
		t.Errorf("run with a master but without an agent: %+v, want exit code %d and that no agent answers", r, exitUnreachable)
	}
	a := w.start("agent", "--name", "one", "--allow-root", w.dir)
	a.until("socket", func() bool { _, err := os.Stat(w.socket()); return err == nil })
	r := w.run("run", "-f", "clicks.yaml", "--", w.self(""))
	if rows, _ := read(t, r.out); r.code != exitOK || rows != 100 {
		t.Errorf("run with a master and an agent: %+v, want 100 rows", r)
	}
	v := decoded[view.Job](t, w.ok("top", "-o", "json"))
	if len(v.Agents) != 1 || v.Agents[0].Name != "one" || v.Datasets[0].State != "done" || v.Datasets[0].Counts.Settled != v.Datasets[0].Counts.Listed {
		t.Errorf("top shows %+v, want the agent one, and the dataset done and completely settled", v)
	}
	a.stop()
	m.stop()
	w.nothingLeft()
}

// A master that is killed leaves its address file. Later its port may be that of any program.
func TestRunStartsAMasterWhereTheLastOneWasKilledAndItsPortIsTaken(t *testing.T) {
	w := newWorld(t)
	m := w.master()
	m.signal(syscall.SIGKILL)
	m.wait()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := link.WriteAddress(w.state(), l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if out := w.ok("run", "--", "echo", "trained"); !strings.Contains(out, "trained") {
		t.Errorf("the trainer says %q", out)
	}
	w.nothingLeft()
}

func TestRunExitsAsItsTrainersDo(t *testing.T) {
	w := newWorld(t)
	w.clicks(10)
	r := w.run("run", "-f", "clicks.yaml", "--max-restarts", "1", "--", w.self(modeFail))
	if r.code != 3 || strings.Count(r.out, "failing as asked") != 2 || !strings.Contains(r.err, "exit status 3") {
		t.Errorf("run with a trainer that fails: %+v, want two starts and the trainer's exit code 3", r)
	}
	if r := w.run("run", "-f", "clicks.yaml", "--", "/no/such/program"); r.code == exitOK || !strings.Contains(r.err, "/no/such/program") {
		t.Errorf("run with a program that does not exist: %+v, want an error that names it", r)
	}
	w.nothingLeft()
}

func TestATrainerThatIsKilledLosesNothing(t *testing.T) {
	w := newWorld(t)
	const n = 2000
	w.clicks(n)
	w.up("-f", "clicks.yaml")
	hang := w.self(modeHang)
	first := w.start("run", "--", hang)
	first.until("a batch in its hands", func() bool { return strings.Contains(first.out.String(), "hanging with") })
	first.signal(syscall.SIGKILL) // this kills run, and the trainer is killed because its parent has died
	first.wait()
	w.env = append(w.env, modeVariable+"=")
	out := w.ok("run", "--", hang)
	if rows, sum := read(t, out); rows != n || sum != n*(n-1)/2 {
		t.Errorf("rows %d sum %d, want %d and %d\n%s", rows, sum, n, n*(n-1)/2, out)
	}
}

func TestAnAgentFindsItsMasterAgainOnAnotherPort(t *testing.T) {
	w := newWorld(t)
	const n = 3000
	w.clicks(n)
	m := w.master()
	w.ok("apply", "-f", "clicks.yaml")
	a := w.start("agent", "--name", "one", "--allow-root", w.dir)
	a.until("session", func() bool { return len(decoded[view.Job](t, w.ok("status", "-o", "json")).Agents) == 1 })
	m.signal(syscall.SIGKILL)
	m.wait()
	before, err := link.ReadAddress(w.state())
	if err != nil {
		t.Fatal(err)
	}
	m = w.start("master", "--listen", "127.0.0.1:0", "--http", "off", "--allow-root", w.dir)
	m.until("another address", func() bool { // the kernel may give it the same port again
		at, err := link.ReadAddress(w.state())
		return err == nil && (at != before || strings.Contains(m.err.String(), "master is up"))
	})
	out := w.ok("run", "--", w.self(""))
	if rows, sum := read(t, out); rows != n || sum != n*(n-1)/2 {
		t.Errorf("rows %d sum %d, want %d and %d\n%s", rows, sum, n, n*(n-1)/2, out)
	}
	a.stop()
	m.stop()
	w.nothingLeft()
}

func TestSIGINTAtEveryStageLeavesNothingBehind(t *testing.T) {
	for _, tc := range []struct {
		name string
		args func(w *world) []string
		when func(w *world, p *proc) bool // when SIGINT is sent; nil means 30 ms after the start
		code int
	}{
		{"up, as it starts", upArgs, nil, 0},
		{"up, when the master has its port", upArgs, func(w *world, _ *proc) bool { return w.masterThere() }, 0},
		{"up, when trainers can come", upArgs, func(_ *world, p *proc) bool { return strings.Contains(p.err.String(), "trainers can come") }, 0},
		{"master, as it starts", masterArgs, nil, 0},
		{"master, listening", masterArgs, func(w *world, _ *proc) bool { return w.masterThere() }, 0},
		{"agent, without a master", func(*world) []string { return []string{"agent", "--allow-root", "."} },
			func(w *world, _ *proc) bool { _, err := os.Stat(w.socket()); return err == nil }, 0},
		{"run, as it starts", runArgs, nil, 130},
		{"run, when the master has its port", runArgs, func(w *world, _ *proc) bool { return w.masterThere() }, 130},
		{"run, with a batch in its trainer's hands", runArgs, func(_ *world, p *proc) bool { return strings.Contains(p.out.String(), "hanging with") }, 130},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t)
			w.clicks(1000)
			p := w.start(tc.args(w)...)
			if tc.when == nil {
				time.AfterFunc(30*time.Millisecond, func() { p.signal(os.Interrupt) }) // while it starts, at no special point
			} else {
				p.until(tc.name, func() bool { return tc.when(w, p) })
				p.signal(os.Interrupt)
			}
			r := p.wait()
			if early := tc.when == nil && r.code == -1; r.code != tc.code && !early { // early: the process died of the signal because it did not handle signals yet
				t.Errorf("exit code %d, want %d\n%s%s", r.code, tc.code, r.out, r.err)
			}
			w.nothingLeft()
		})
	}
}

func upArgs(*world) []string { return []string{"up", "-f", "clicks.yaml"} }

func masterArgs(*world) []string {
	return []string{"master", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--allow-root", "."}
}

func runArgs(w *world) []string { return []string{"run", "-f", "clicks.yaml", "--", w.self(modeHang)} }

func TestAnAgentShowsItsOwnNumbers(t *testing.T) {
	w := newWorld(t)
	up := w.up()
	page := w.fetch("http://" + decoded[view.Job](t, w.ok("status", "-o", "json")).HTTP + "/metrics")
	if !strings.Contains(page, "headrace_agent_buffer_bytes") || !strings.Contains(page, "headrace_store_commit_seconds") {
		t.Error("the metrics of up are not those of both agent and master:", page)
	}
	up.stop()

	a := w.start("agent", "--metrics", "127.0.0.1:0", "--allow-root", ".")
	at := regexp.MustCompile(`msg=metrics address=(\S+)`)
	a.until("metrics", func() bool { return at.MatchString(a.err.String()) })
	base := "http://" + at.FindStringSubmatch(a.err.String())[1]
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable, "/debug/pprof/": http.StatusOK} {
		if got, _ := w.page(base + path); got != want {
			t.Errorf("GET %s of an agent without a master: status %d, want %d", path, got, want)
		}
		refused := http.StatusUnauthorized
		if path == "/healthz" {
			refused = http.StatusOK
		}
		if got := statusOf(t, base+path); got != refused {
			t.Errorf("GET %s without a token: status %d, want %d", path, got, refused)
		}
	}
	if page := w.fetch(base + "/metrics"); !strings.Contains(page, "headrace_agent_buffer_bytes") {
		t.Error("the agent's metrics have no headrace_agent_buffer_bytes:", page)
	}
	a.stop()
	w.nothingLeft()
}

func statusOf(t *testing.T, url string) int {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// page gets a page of the master or the agent with the token, as their user does, and returns status and text.
func (w *world) page(url string) (int, string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	if err == nil {
		err = link.Target{State: w.state()}.Authorize(request)
	}
	if err != nil {
		w.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func (w *world) fetch(url string) string {
	_, text := w.page(url)
	return text
}
