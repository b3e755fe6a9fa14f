package chaos

import (
	"math/rand/v2"
	"slices"
)

// The ways in which trainers save.
const (
	byCheckpointer = "save"    // Checkpointer.save
	ownFile        = "bind"    // a file that the trainer writes itself and binds to a cut
	carriedCut     = "carried" // Stream.state_dict in a file of the trainer's own
)

// choices say what a run tests, apart from its input. The seed draws them.
type choices struct {
	saves   string
	keeps   int  // how many checkpoints are kept
	sharded bool // replicated: each rank saves its own part
	pins    bool // a person pins checkpoints
	rewinds bool // replicated: a person goes back to an older checkpoint
	empties bool // the master loses its state
	servers bool // shared: the server of the model is killed too
	pause   bool // shared, byCheckpointer: a save pauses all yields, so its cut is exact
	exact   bool // replicated, for inputs with an end: bit_exact batches
	memory  bool // replicated and private, byCheckpointer: checkpoints in memory too (memory.go)
	copies  bool // with memory: agents copy slots to each other (--replicas 1)
	rounds  bool // replicated: either all ranks get a batch, or none does (rounds.go)
	drops   bool // with rounds, for inputs with an end: full rounds only (drops.go)
}

// Choices lists the words that Options.Draw may hold.
func Choices() []string {
	return []string{byCheckpointer, ownFile, carriedCut, "sharded", "pins", "rewinds", "empty-master", "kill-server", "bit-exact", "pause", "memory", "rounds", "drop", "replicas"}
}

// draw draws the choices of a run. The choices in o.Draw are set whatever the seed says.
func draw(o Options, r *rand.Rand) (c choices) {
	said := func(word string) bool { return slices.Contains(o.Draw, word) }
	one := func(word string, in int) bool { n := r.IntN(in); return n == 0 || said(word) }
	c.saves = []string{byCheckpointer, byCheckpointer, ownFile, carriedCut}[r.IntN(4)]
	for _, way := range []string{byCheckpointer, ownFile, carriedCut} {
		if said(way) {
			c.saves = way
		}
	}
	c.keeps = 1 + r.IntN(3)
	c.sharded = one("sharded", 2)
	c.pins, c.rewinds, c.empties = one("pins", 2), one("rewinds", 2), one("empty-master", 3)
	c.servers, c.exact = one("kill-server", 2), one("bit-exact", 3)
	c.pause = r.IntN(3) > 0 || said("pause")
	asked := (said("memory") || said("replicas")) && !said(ownFile) && !said(carriedCut)
	drawn := r.IntN(3) == 0 && c.saves == byCheckpointer
	if c.memory = drawn || asked; c.memory {
		c.saves, c.sharded = byCheckpointer, false
	}
	c.rounds = one("rounds", 2) || said("drop")
	c.drops = one("drop", 2)
	switch {
	case o.Journal:
		return choices{}
	case o.Model != "replicated":
		c.sharded, c.rewinds, c.exact, c.rounds = false, false, false, false
	}
	if o.Model != "shared" {
		c.servers, c.pause = false, false
	} else {
		c.memory = false
	}
	if o.Live || c.memory { // undisturbed, the job that bit_exact compares with, has no nodes
		c.exact = false
	}
	if c.exact && said("drop") && !said("bit-exact") {
		c.exact = false
	}
	if !c.rounds || o.Live || c.exact { // an input without an end drops nothing: its last rows wait for more. With bit_exact, every record is in a step
		c.drops = false
	}
	if o.Source == Landing { // pushed records are part of the master's state
		c.empties = false
	}
	if c.saves != byCheckpointer {
		c.sharded, c.pause = false, false
	}
	if c.saves == carriedCut { // a carried cut has no manifest, which pin and rewind need
		c.pins, c.rewinds = false, false
	}
	if c.memory {
		c.copies = one("replicas", 2)
	}
	return c
}

// words names the choices that are set.
func (c choices) words() (all []string) {
	if c.saves != "" {
		all = append(all, c.saves)
	}
	for i, yes := range []bool{c.sharded, c.pins, c.rewinds, c.empties, c.servers, c.exact, c.pause, c.memory, c.rounds, c.drops, c.copies} {
		if yes {
			all = append(all, Choices()[3+i])
		}
	}
	return all
}
