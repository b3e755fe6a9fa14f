package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/headrace/headrace/flashckpt/memory"
	"github.com/headrace/headrace/internal/proof/child"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Checkpoints in memory. Each agent is a node with a tmpfs of its own, where its trainers keep their
// slots. A trainer mostly starts again on its node, and a replicated group is on one node. In some
// runs agents copy slots to each other.

// plainPoints: so many of trapPoints, from the first on, are reached without memory too.
const plainPoints = 13

// memoryPoints are the points of a save in memory, and of its way to storage.
var memoryPoints = []string{"copying", "captured", "frozen", "sealed", "persist", "persist", "renamed", "bound", "restored"}

// fullBytes is the size of a node's tmpfs that has no room for a slot.
const fullBytes = "1m"

// InMemory is what a run found about checkpoints in memory.
type InMemory struct {
	Whole          int `json:"held,omitempty"`             // checkpoints that trainers reported complete in memory
	FromMemory     int `json:"from_memory,omitempty"`      // restores, each compared with its cut
	FromPeers      int `json:"from_peers,omitempty"`       // the same, from another node's memory
	Promises       int `json:"promises,omitempty"`         // restores for which a checkpoint in memory had to be still there
	EpochsLost     int `json:"epochs_lost,omitempty"`      // of these: an older checkpoint was restored
	Nodes          int `json:"nodes_lost,omitempty"`       // nodes that were lost, with their memory, agent and trainers
	Flips          int `json:"flips,omitempty"`            // bits that were flipped in slots
	NodesWithoutIt int `json:"nodes_without_it,omitempty"` // nodes whose tmpfs was full from the start
}

func (m *InMemory) add(o InMemory) {
	m.Whole += o.Whole
	m.FromMemory += o.FromMemory
	m.FromPeers += o.FromPeers
	m.Promises += o.Promises
	m.EpochsLost += o.EpochsLost
	m.Nodes += o.Nodes
	m.Flips += o.Flips
	m.NodesWithoutIt += o.NodesWithoutIt
}

// nodes is what the crew knows of nodes. crew.mu guards it.
type nodes struct {
	root    string
	full    int // the node whose tmpfs has no room; -1: none
	mounted bool
	at      int // replicated: the node of the group
	group   int // the start of the group that was placed last
	lost    []lostMemory
}

// lostMemory is a time at which memory was lost or changed: checkpoints from before need not be there.
type lostMemory struct {
	rank, node int // -1: all
	at         int64
}

func (c *crew) restoredDir() string  { return filepath.Join(c.dir, "restored") }
func (c *crew) nodeDir(k int) string { return filepath.Join(c.nodes.root, fmt.Sprintf("node-%d", k)) }

// makeMemory makes the folders of the nodes. In some runs that may mount a tmpfs, one node gets a tmpfs
// without room for a slot.
func (c *crew) makeMemory(r *rand.Rand, tell func(string, ...any)) error {
	c.nodes = nodes{root: filepath.Join("/dev/shm", c.run), full: -1}
	if err := os.Mkdir(c.restoredDir(), 0o700); err != nil {
		return err
	}
	for k := range c.agents {
		if err := os.MkdirAll(c.nodeDir(k), 0o700); err != nil {
			return err
		}
	}
	if r.IntN(3) > 0 || os.Getuid() != 0 {
		return nil
	}
	c.nodes.full = r.IntN(len(c.agents))
	if err := syscall.Mount("none", c.nodeDir(c.nodes.full), "tmpfs", 0, "size="+fullBytes+",mode=700"); err != nil {
		tell("no node has a full memory: mounting a tmpfs failed: %v", err)
		c.nodes.full = -1
		return nil
	}
	c.nodes.mounted = true
	tell("the memory of agent-%d is full", c.nodes.full)
	return nil
}

func (c *crew) removeMemory() error {
	var err error
	if c.nodes.mounted {
		err = syscall.Unmount(c.nodeDir(c.nodes.full), 0)
	}
	return errors.Join(err, os.RemoveAll(c.nodes.root))
}

// memoryOf is the environment of a node's agent and trainers.
func (c *crew) memoryOf(node int, more ...string) []string {
	if c.memory {
		more = append(more, memory.RootVariable+"="+c.nodeDir(node))
	}
	return more
}

// agentOf chooses the agent of a rank's next process. c.mu is held.
func (c *crew) agentOf(s *seat) int {
	any := func() int { return c.rnd.IntN(len(c.agents)) }
	switch {
	case !c.memory:
		return any()
	case c.o.Model == "replicated":
		if len(s.lives) == 0 && s.rank == 0 || c.nodes.group != c.group && c.rnd.IntN(6) == 0 {
			c.nodes.at = any()
		}
		c.nodes.group = c.group
		return c.nodes.at
	case len(s.lives) == 0 || c.rnd.IntN(6) == 0:
		return any()
	}
	return s.life.agent
}

// disturbMemory notes that a rank's checkpoints in the memory of a node need not be there any more.
// -1: those of all ranks, or on all nodes. c.mu is held.
func (c *crew) disturbMemory(rank, node int) {
	c.nodes.lost = append(c.nodes.lost, lostMemory{rank, node, child.Monotonic()})
}

// agentUnder is the agent of a trainer, as a target.
func (t *trouble) agentUnder(v target) target {
	t.mu.Lock()
	defer t.mu.Unlock()
	return target{t.agents[v.agent], v.agent, nil}
}

// loseNode kills an agent and its trainers, and deletes the memory of their node.
func (t *trouble) loseNode(ctx context.Context) bool {
	held := t.books.leases(ctx)
	t.mu.Lock() // no process is started meanwhile
	defer t.mu.Unlock()
	k := t.rnd.IntN(len(t.agents))
	all := []target{{t.agents[k], k, nil}}
	for _, s := range t.seats {
		if s.life.agent == k {
			all = append(all, target{s.p, k, s.life})
		}
	}
	for _, v := range all {
		if v.p.Ended() {
			continue
		}
		v.p.Signal(syscall.SIGKILL)
		t.kills++
		if held.of(v) {
			t.leased++
		}
	}
	for _, v := range all {
		<-v.p.Done
	}
	t.disturbMemory(-1, k)
	entries, err := os.ReadDir(t.nodeDir(k))
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(t.nodeDir(k), e.Name())))
	}
	if err != nil {
		t.wrong = append(t.wrong, err.Error())
	}
	t.away++
	t.tell("lose the node of agent-%d, with %d trainers and its memory", k, len(all)-1)
	return true
}

// flip kills a trainer and changes a bit in its newest slot.
func (t *trouble) flip(ctx context.Context) bool {
	v := t.someTrainer()
	t.kill(ctx, v)
	t.mu.Lock() // no process is started meanwhile
	defer t.mu.Unlock()
	t.flipIn(v.life.rank)
	return true
}

// flipIn ends the rank's process first: it may have been started again since the kill, have checked
// the slot's checksum, and be reading the slot. t.mu is held.
func (t *trouble) flipIn(rank int) {
	t.end(rank)
	agent := t.seats[rank].life.agent
	path, at, err := t.flipNewest(rank, agent)
	if err != nil {
		t.wrong = append(t.wrong, err.Error())
	}
	if path != "" {
		t.flips++
		t.disturbMemory(rank, agent)
		t.tell("flip a bit of byte %d of %s", at, path)
	}
}

// flipNewest changes a bit in the rank's newest complete slot. The path is "" if it has none.
func (t *trouble) flipNewest(rank, agent int) (path string, at int64, err error) {
	slots, err := filepath.Glob(filepath.Join(t.nodeDir(agent), "headrace-*", "*", fmt.Sprintf("rank-%d-slot-[0-9]", rank)))
	if err != nil {
		return "", 0, err
	}
	var size, newest int64
	for _, slot := range slots {
		s, err := memory.Open(slot)
		if err != nil {
			continue // it is not complete
		}
		if order := int64(s.About.Manifest.Cut.Order); order > newest {
			newest, path, size = order, slot, s.Bytes
		}
		if err := s.Close(); err != nil {
			return "", 0, err
		}
	}
	if path == "" {
		return "", 0, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return "", 0, nil
	}
	if err != nil {
		return "", 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var b [1]byte
	at = 4096 + t.rnd.Int64N(size)
	if _, err := f.ReadAt(b[:], at); err != nil {
		return "", 0, err
	}
	b[0] ^= 1 << t.rnd.IntN(8)
	_, err = f.WriteAt(b[:], at)
	return path, at, err
}

// judgeMemory checks restores after a kill: a checkpoint that was complete in memory, or a newer one,
// must be restored, unless that memory was lost or changed.
func (c *crew) judgeMemory(lives []*life, v *Verdict, m *InMemory) {
	if c.nodes.full >= 0 {
		m.NodesWithoutIt++
	}
	byRank := map[int][]*life{}
	for _, l := range lives {
		byRank[l.rank] = append(byRank[l.rank], l) // in order
		m.Whole += len(l.held)
		for _, r := range l.restored {
			switch {
			case r.memory:
				m.FromMemory++
			case r.peer:
				m.FromPeers++
			}
		}
	}
	if c.o.Model == "private" {
		for rank, all := range byRank {
			p := promise{c: c, ranks: map[int]bool{rank: true}}
			for _, l := range all {
				p.life([]*life{l}, v, m)
			}
		}
		return
	}
	p := promise{c: c, ranks: map[int]bool{}}
	groups := map[int][]*life{}
	last := 0
	for rank, all := range byRank {
		p.ranks[rank] = true
		for _, l := range all {
			groups[l.group] = append(groups[l.group], l)
			last = max(last, l.group)
		}
	}
	for g := range last + 1 {
		p.life(groups[g], v, m)
	}
}

// promise follows which checkpoints a rank, or all ranks of a group, have in memory.
type promise struct {
	c     *crew
	ranks map[int]bool
	has   map[int]map[int64]int64 // by rank: order of the cut -> time since when it is there
	node  int
}

// life judges the next start of these ranks, then takes over what it held.
func (p *promise) life(all []*life, v *Verdict, m *InMemory) {
	if len(all) == 0 {
		return
	}
	moved := p.node != all[0].agent
	for _, l := range all {
		for _, r := range l.restored {
			if order, since := p.newest(); order > 0 && !moved && !p.lostSince(since, r.at) {
				m.Promises++
				if r.order < order {
					m.EpochsLost++
					v.say("%s went back to the cut of order %d (%v), although the cut of order %d was complete in memory", l, r.order, r.cut, order)
				}
			}
		}
	}
	var back *restored
	for _, l := range all {
		if len(l.restored) > 0 {
			back = &l.restored[len(l.restored)-1]
		}
	}
	if back == nil { // it was killed before it went back: memory is unchanged
		return
	}
	p.node, p.has = all[0].agent, map[int]map[int64]int64{}
	for rank := range p.ranks {
		p.has[rank] = map[int64]int64{}
		if back.memory {
			p.has[rank][back.order] = back.at
		}
	}
	for _, l := range all {
		for _, h := range l.held {
			p.has[l.rank][h.order] = h.at
		}
	}
}

// newest gives the newest cut that all ranks have in memory, and since when. 0: there is none.
func (p *promise) newest() (order, since int64) {
	if len(p.has) == 0 {
		return 0, 0
	}
	count, latest := map[int64]int{}, map[int64]int64{}
	for _, orders := range p.has {
		for o, at := range orders {
			count[o]++
			latest[o] = max(latest[o], at)
		}
	}
	for o, n := range count {
		if n == len(p.ranks) && o > order {
			order, since = o, latest[o]
		}
	}
	return order, since
}

func (p *promise) lostSince(since, until int64) bool {
	p.c.mu.Lock()
	defer p.c.mu.Unlock()
	for _, l := range p.c.nodes.lost {
		if (l.rank < 0 || p.ranks[l.rank]) && (l.node < 0 || l.node == p.node) && l.at >= since && l.at <= until {
			return true
		}
	}
	return false
}

// checkRestored compares each state that was restored from memory with its cut.
func (c *crew) checkRestored(found map[cut.ID]kept, v *Verdict, s *Saves) error {
	files, err := filepath.Glob(filepath.Join(c.restoredDir(), "*.model"))
	if err != nil {
		return err
	}
	for _, path := range files {
		name := "restored from memory " + strings.TrimSuffix(filepath.Base(path), ".model")
		body, err := carriedIn(path)
		if err != nil {
			v.say("%s: %v", name, err)
			continue
		}
		models, dropped := checkFiles(name, []string{path}, body, c.inputs, v, s)
		if _, known := found[body.ID]; !known && len(models) > 0 {
			found[body.ID] = kept{models, body, dropped}
		}
	}
	return nil
}
