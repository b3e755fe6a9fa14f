package agent_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/frame"
)

// runTrainer is the main function of a trainer process. It steps batch after batch and prints the
// records that it applied. If its agent is started again, it joins the new one. Its settings:
//
//	HEADRACE_TEST_TRAINER  socket
//	HEADRACE_TEST_RANK     rank
//	HEADRACE_TEST_HOLD     n: after n batches take one more and wait for stdin
//	HEADRACE_TEST_SPURT    n: take n batches, send all their steps in one write, and kill itself
//	HEADRACE_TEST_ATTACH   an incarnation: only try to attach a data connection, as a forked child
func runTrainer() int {
	rank, _ := strconv.Atoi(os.Getenv("HEADRACE_TEST_RANK"))
	holdAfter, _ := strconv.Atoi(os.Getenv("HEADRACE_TEST_HOLD"))
	socket := os.Getenv("HEADRACE_TEST_TRAINER")
	if fork := os.Getenv("HEADRACE_TEST_ATTACH"); fork != "" {
		return attachAsFork(socket, fork)
	}
	commands := make(chan string)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			commands <- in.Text()
		}
		close(commands)
	}()
	open := frame.Open{Dataset: "lines", Rows: 50, Track: true, Ack: frame.AckStep}
	if n, _ := strconv.Atoi(os.Getenv("HEADRACE_TEST_SPURT")); n > 0 {
		open.Rows = 5
		return report(spurt(socket, open, n))
	}
	t, err := hello(socket, frame.Hello{Rank: uint32(rank), WorldSize: 8})
	if err != nil {
		return report(err)
	}
	s, err := t.open(1, open)
	if err != nil {
		return report(err)
	}
	if err := s.credit(2); err != nil {
		return report(err)
	}
	step := int64(0)
	for n := 0; ; n++ {
		b, err := s.next(0)
		if err == errEnd {
			break
		}
		if err == nil && holdAfter > 0 && n == holdAfter {
			fmt.Println("holding", first(b))
			switch command := <-commands; command {
			case "go":
			case "drop":
				_ = t.control.Close()
				<-commands // and live
				return 0
			}
		}
		if err == nil {
			step++
			line, _ := json.Marshal(map[string]any{"segments": b.segment, "offsets": b.offsets})
			fmt.Println("applied", string(line))
			if err = s.step(step, 1); err == nil {
				err = s.credit(1)
			}
		}
		if err != nil {
			if t, s, err = comeBack(t, s, open); err != nil {
				return report(err)
			}
			fmt.Println("back")
		}
	}
	if err := s.acked(s.through); err != nil && len(s.sent) > 0 {
		return report(err)
	}
	s.close()
	t.bye()
	fmt.Println("done")
	return 0
}

// spurt kills its own process right after it has sent its steps, so both reach the agent together.
func spurt(socket string, open frame.Open, n int) error {
	t, err := hello(socket, frame.Hello{})
	if err != nil {
		return err
	}
	s, err := t.open(1, open)
	if err != nil {
		return err
	}
	if err := s.credit(uint32(n)); err != nil {
		return err
	}
	var steps []byte
	for i := range n {
		b, err := s.next(i)
		if err != nil {
			return err
		}
		line, _ := json.Marshal(map[string]any{"segments": b.segment, "offsets": b.offsets})
		fmt.Println("applied", string(line))
		step := int64(i + 1)
		steps, err = frame.AppendControl(steps, frame.TypeStep, 1, 0, frame.Step{Step: &step, Batches: 1, Through: uint32(step)})
		if err != nil {
			return err
		}
	}
	if _, err := t.control.Write(steps); err != nil {
		return err
	}
	return syscall.Kill(os.Getpid(), syscall.SIGKILL)
}

func first(b *batch) string { return fmt.Sprintf("%d/%d", b.segment[0], b.offsets[0]) }

func report(err error) int {
	fmt.Println("error", err)
	return 1
}

// comeBack connects to the agent that listens on the socket now, and tells it the batches in hand, as
// the Python client does.
func comeBack(t *trainer, s *stream, open frame.Open) (*trainer, *stream, error) {
	_ = s.data.Close()
	t.drop()
	// Answers from before the break still count.
	for len(s.sent) > 0 && s.sent[0].number <= t.through() {
		s.sent = s.sent[1:]
	}
	h := t.hello
	h.Generation = t.welcome.Generation
	h.Resume = []frame.ResumeEntry{s.resume(open)}
	retry := time.NewTicker(20 * time.Millisecond)
	defer retry.Stop()
	after := time.After(patience)
	for {
		again, err := hello(t.socket, h)
		if err == nil {
			s.t = again
			if len(again.welcome.Resumed) != 1 || again.welcome.Resumed[0].Refused {
				return nil, nil, fmt.Errorf("fenced: %+v", again.welcome.Resumed)
			}
			if err := s.attach(); err != nil {
				return nil, nil, err
			}
			return again, s, s.credit(2)
		}
		select {
		case <-retry.C:
		case <-after:
			return nil, nil, err
		}
	}
}

// through returns the batch number of the last unread ACKED.
func (t *trainer) through() (n uint32) {
	for m := range t.in {
		var a frame.Acked
		if m.Type == frame.TypeAcked && json.Unmarshal(m.payload, &a) == nil {
			n = max(n, a.Through)
		}
	}
	return n
}

// child is a trainer process seen from the test.
type child struct {
	t       *testing.T
	cmd     *exec.Cmd
	in      *os.File
	lines   chan string
	reading sync.WaitGroup
	applied map[[2]int64]int
	mu      sync.Mutex
}

func trainerProcess(t *testing.T, socket string, env ...string) *child {
	t.Helper()
	c := &child{t: t, lines: make(chan string, 10000), applied: map[[2]int64]int{}}
	c.cmd = exec.Command(os.Args[0])
	c.cmd.Env = append(append(os.Environ(), "HEADRACE_TEST_TRAINER="+socket), env...)
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.cmd.Stderr = os.Stderr
	in, inWrite, err := os.Pipe()
	check(t, err)
	c.cmd.Stdin, c.in = in, inWrite
	out, err := c.cmd.StdoutPipe()
	check(t, err)
	check(t, c.cmd.Start())
	check(t, in.Close())
	c.reading.Go(func() {
		defer close(c.lines)
		scan := bufio.NewScanner(out)
		scan.Buffer(nil, 16<<20)
		for scan.Scan() {
			c.note(scan.Text())
		}
	})
	t.Cleanup(func() {
		_ = inWrite.Close()
		_ = c.cmd.Process.Kill()
		c.reading.Wait()
		_ = c.cmd.Wait()
	})
	return c
}

func (c *child) note(line string) {
	rest, ok := strings.CutPrefix(line, "applied ")
	if !ok {
		c.lines <- line
		return
	}
	var b struct{ Segments, Offsets []int64 }
	if err := json.Unmarshal([]byte(rest), &b); err != nil {
		c.lines <- "error " + err.Error()
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range b.Offsets {
		c.applied[[2]int64{b.Segments[i], b.Offsets[i]}]++
	}
}

func (c *child) say(line string) {
	_, err := fmt.Fprintln(c.in, line)
	check(c.t, err)
}

// await skips lines until one begins with want. It returns false if the process ends first.
func (c *child) await(want string) bool {
	c.t.Helper()
	after := deadline(c.t)
	for {
		select {
		case line, ok := <-c.lines:
			if !ok {
				return false
			}
			if strings.HasPrefix(line, want) {
				return true
			}
			if strings.HasPrefix(line, "error") {
				c.t.Errorf("a trainer process failed: %s", line)
				return false
			}
		case <-after:
			c.t.Fatalf("the trainer did not print %q in time", want)
		}
	}
}

// applied counts, for each record, how often the trainers have applied it.
func applied(children ...*child) map[[2]int64]int {
	all := map[[2]int64]int{}
	for _, c := range children {
		c.mu.Lock()
		for k, n := range c.applied {
			all[k] += n
		}
		c.mu.Unlock()
	}
	return all
}
