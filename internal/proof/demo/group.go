package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/headrace/headrace/examples/clicks"
	"github.com/headrace/headrace/internal/proof/child"
	"github.com/headrace/headrace/internal/proof/demo/report"
)

const formWithin = 2 * time.Minute // how long it may take to form, on a busy machine

// group is what we compare with: the same trainers as a plain consumer group. They read the same topic at
// the same time, and are killed at the same moments.
type group struct {
	*team
	rival   rival
	topic   *topic
	model   string
	members [trainers]*process
	lives   [trainers]int
	kills   []report.Kill
}

func newGroup(t *team, of *topic, r rival) (*group, error) {
	for name, program := range map[string][]byte{"rival.py": clicks.Rival, "train_group.py": of.queue.program} {
		if err := os.WriteFile(filepath.Join(t.root, name), program, 0o600); err != nil {
			return nil, err
		}
	}
	g := &group{team: t, rival: r, topic: of, model: t.folders.model + "-" + r.name}
	return g, os.MkdirAll(g.journals(), 0o700)
}

func (g *group) journals() string { return filepath.Join(g.root, g.rival.name) }

func (g *group) memberName(rank int) string { return g.rival.kind + "-" + strconv.Itoa(rank) }

// start starts the next processes of these members.
func (g *group) start(ranks ...int) (err error) {
	for _, rank := range ranks {
		g.lives[rank]++
		g.members[rank], err = g.processes.start(g.rival.kind, g.memberName(rank), []string{"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1", "PYTHONUNBUFFERED=1"},
			append([]string{g.python, filepath.Join(g.root, "train_group.py"), "--rank", strconv.Itoa(rank),
				"--model", g.model, "--rows", strconv.Itoa(batchRows), "--rate", strconv.FormatFloat(topicRates[rank], 'f', -1, 64),
				"--journal", g.journal(rank)}, slices.Concat(g.topic.broker.group(topicName, groupNames+g.rival.name), g.rival.args)...)...)
		if err != nil {
			return err
		}
	}
	return nil
}

// formed waits until every member has got a partition, so that all start from the same state.
func (g *group) formed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, formWithin)
	defer cancel()
	for rank := range g.members {
		for {
			ready, err := hasPartitions(g.journal(rank))
			if ready {
				break
			}
			if err := errors.Join(err, g.ended()); err != nil {
				return err
			}
			if pause(ctx, poll) != nil {
				return fmt.Errorf("%s has got no partition within %v (%w)", g.memberName(rank), formWithin, ctx.Err())
			}
		}
	}
	return nil
}

func hasPartitions(path string) (bool, error) {
	r, err := report.OpenJournal(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // it has not written a journal yet
	}
	if err != nil {
		return false, err
	}
	defer func() { _ = r.Close() }()
	for {
		e, err := r.Next()
		if err != nil {
			return false, nil // the rest is not written yet
		}
		if e.Kind == report.Ready {
			return true, nil
		}
	}
}

func (g *group) journal(rank int) string {
	return filepath.Join(g.journals(), fmt.Sprintf(journalName, rank, g.lives[rank]))
}

// killMembers kills the members of each group that correspond to the trainers just killed. It returns the
// function that starts them again.
func (k *killer) killMembers(ranks ...int) (again func() error, err error) {
	killed := map[*group][]report.Kill{}
	for _, g := range k.groups {
		for _, rank := range ranks {
			p := g.members[rank]
			at, err := p.Kill()
			if err != nil {
				return nil, err
			}
			killed[g] = append(killed[g], report.Kill{What: "consumer", Name: p.Name, PID: p.Pid(), At: at})
			k.tell.say("and SIGKILL to %s of the consumer group (process %d)", p.Name, p.Pid())
		}
	}
	return func() error {
		for _, g := range k.groups {
			if err := g.start(ranks...); err != nil {
				return err
			}
			kills := killed[g]
			for i := range kills {
				kills[i].Back = child.Monotonic()
			}
			if err := g.note(kills...); err != nil {
				return err
			}
		}
		return nil
	}, nil
}

// note writes kills into the folder of the group's journals.
func (g *group) note(kills ...report.Kill) error {
	g.kills = append(g.kills, kills...)
	return writeKills(g.journals(), g.kills)
}

// ended is the error of a member that has ended by itself. nil: none has.
func (g *group) ended() error {
	for _, p := range g.members {
		if p.Ended() {
			return p.died()
		}
	}
	return nil
}
