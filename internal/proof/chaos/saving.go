package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/headrace/headrace/internal/proof/child"
	"github.com/headrace/headrace/internal/proof/testbroker"
)

// This file has the parts of a run with checkpoints (trainer/saving.py). A run with --journal has none of them.

const (
	collectEvery = 25 * time.Millisecond // less than two saves take, after which retention may remove a checkpoint
	saveTimeout  = 20                    // seconds
)

func (c *crew) pids() string { return filepath.Join(c.dir, "pids") }

// known writes down the pid of a process, for traps that kill it.
func (c *crew) known(p *child.Process, err error) (*child.Process, error) {
	if err != nil {
		return nil, err
	}
	return p, os.WriteFile(filepath.Join(c.pids(), p.Name), []byte(strconv.Itoa(p.Cmd.Process.Pid)), 0o600)
}

func (c *crew) sizes() (all [][2]int) {
	for _, in := range c.inputs {
		all = append(all, [2]int{in.records, in.passes})
	}
	return all
}

// savesToo adds the settings of checkpoints to a trainer's settings. c.mu is held.
func (c *crew) savesToo(s *seat, settings map[string]any) {
	settings["checkpoints"], settings["carried"] = c.checkpoints(), c.carried()
	settings["saves"], settings["sharded"], settings["exact_rows"] = c.saves, c.sharded, c.exactRows()
	settings["rounds"] = c.rounds
	settings["pause"], settings["archive"] = c.pause, c.archive()
	settings["keep"], settings["save_every"], settings["save_timeout"] = c.keeps, 0.15+c.rnd.Float64(), saveTimeout
	settings["port"], settings["server"], settings["server_life"] = c.port, c.port, c.lifeOf
	settings["pids"], settings["mark"] = c.pids(), mark+c.run
	settings["memory"], settings["restored"], settings["life"] = c.memory, c.restoredDir(), s.life.no
	settings["trap"] = c.trap(s.life.agent)
}

// trap draws one kill at a named point. Most processes that start while there is trouble get one.
func (c *crew) trap(agent int) map[string]any {
	if c.calm || c.rnd.IntN(3) == 0 {
		return nil
	}
	point := trapPoints[c.rnd.IntN(plainPoints)]
	if c.memory && c.rnd.IntN(3) > 0 {
		point = memoryPoints[c.rnd.IntN(len(memoryPoints))]
	}
	after := 1 + c.rnd.IntN(3)
	switch point {
	case "yield", "apply", "step", "acked":
		after = 1 + c.rnd.IntN(40)
	case "restored":
		after = 1
	}
	own := fmt.Sprintf("agent-%d", agent)
	victims := [][]string{{"self"}, {"self"}, {"master"}, {own}, {"master", "self"}, {own, "self"}, {"master", own}}
	return map[string]any{"point": point, "after": after, "victims": victims[c.rnd.IntN(len(victims))]}
}

// startSaving starts what saves need beside the trainers: the shared model's server, and the goroutine
// that collects checkpoints.
func (c *crew) startSaving(ctx context.Context) (err error) {
	if c.port, err = testbroker.FreePort(); err != nil {
		return err
	}
	if c.o.Model == "shared" {
		if err := c.startServer(); err != nil {
			return err
		}
		if err := reachable(c.port); err != nil {
			return err
		}
		c.wg.Go(c.keepServer)
	}
	if c.commitsBound() {
		c.wg.Go(func() { c.watchCommits(ctx) })
	}
	c.wg.Go(func() { // ends with the run
		tick := time.NewTicker(collectEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := c.collect(); err != nil {
					c.wrongf("collecting checkpoints: %v", err)
					return
				}
			case <-c.quit:
				return
			}
		}
	})
	return nil
}

// startServer starts the next life of the shared model's server. Every life but the first begins
// without the model: a trainer has to restore it.
func (c *crew) startServer() error {
	c.lifeOf++
	text, err := json.Marshal(map[string]any{"role": "server", "server": c.port, "server_life": c.lifeOf, "sizes": c.sizes(), "seed": 0, "journal": os.DevNull})
	if err != nil {
		return err
	}
	c.server, err = c.start("server", []string{"CHAOS_TRAINER=" + string(text)}, c.o.Python, "-m", "trainer")
	return err
}

// keepServer starts the server again. When the server dies, its model is lost, and all trainers end.
// The first of the next ones restores the model.
func (c *crew) keepServer() {
	for {
		c.mu.Lock()
		p := c.server
		c.mu.Unlock()
		select {
		case <-p.Done:
		case <-c.quit:
			return
		}
		if status, how := p.Status(); status >= 0 {
			c.wrongf("%s ended by itself: %s", p.Name, how)
		}
		c.mu.Lock()
		c.endTrainers()
		err := c.startServer()
		c.mu.Unlock()
		if err != nil {
			c.wrongf("%v", err)
			return
		}
	}
}

// reachable waits until a process listens on the port.
func reachable(port int) error {
	deadline := time.After(2 * time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		peer, err := net.DialTimeout("tcp", local(port), time.Second)
		if err == nil {
			return peer.Close()
		}
		select {
		case <-tick.C:
		case <-deadline:
			return fmt.Errorf("the server of the shared model: %w", err)
		}
	}
}

// judgeSaves judges a run with checkpoints.
func (c *crew) judgeSaves(ctx context.Context, lives []*life, res *Result) error {
	res.Points = map[string]int{}
	for _, l := range lives {
		for _, t := range l.traps {
			res.KillsAtPoints++
			res.Points[t.point+"/"+[]string{"trainer", "master", "agent"}[t.victim]]++
		}
	}
	if c.memory {
		c.judgeMemory(lives, &res.Verdict, &res.InMemory)
	}
	saves, found, err := c.checkAll(ctx, lives, &res.Verdict)
	if err != nil {
		return err
	}
	res.Saves = saves
	if c.o.Model == "shared" {
		res.judgeShared(c.inputs, lives, c.sinceRestored(lives, found, &res.Verdict), c.excuses())
	}
	res.judgeOrder(c.o.Model, c.inputs, lives)
	return nil
}
