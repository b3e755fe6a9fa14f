package demo

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
)

// follow shows progress and kills as planned, until all is read: every trainer has seen the end of data,
// or, with a topic, which has no end, every record is in the model.
func follow(ctx context.Context, o Options, k *killer) error {
	truth, err := clicklog.ReadTruth(k.team.truth)
	if err != nil {
		return err
	}
	w := newWatch(k.team.journals, truth)
	defer w.close()
	var groups groupWatches
	for _, g := range k.groups {
		groups = append(groups, &groupWatch{watch: newWatch(g.journals(), truth), group: g})
	}
	defer groups.close()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	ctx, cancel := context.WithCancel(ctx)
	killing := make(chan error, 1)
	busy := false
	defer func() { // the killer may be starting a process: wait for it
		cancel()
		if busy {
			<-killing
		}
	}()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-killing:
			if busy = false; err != nil {
				return err
			}
			w.changed = time.Now() // do not count the time that a broker needs to start
		case <-ticker.C:
		}
		if err := errors.Join(w.look(), groups.look()); err != nil {
			return err
		}
		k.tell.progress(w.line(k.besides(groups)))
		if busy {
			continue // processes that are dead now were killed by us
		}
		done, gaveUp, err := k.team.trained()
		if done || err != nil {
			return err
		}
		if k.topic != nil {
			if done, err := k.live(ctx, w, groups); done || err != nil {
				return err
			}
		}
		for _, rank := range gaveUp {
			if err := k.startAgain(rank); err != nil {
				return err
			}
		}
		if time.Since(w.changed) > stuck && !w.all() {
			return fmt.Errorf("no trainer has applied a row for %v; with --keep the outputs of all processes are kept in %s", stuck, k.team.outputs)
		}
		if o.Kills {
			busy = true
			share := w.share()
			go func() { killing <- k.next(ctx, share) }() // ends with ctx
		}
	}
}

// trained says whether all trainers have ended well, and which have given up (see maxGaveUp). Any other
// end of a process is an error.
func (t *team) trained() (all bool, gaveUp []int, err error) {
	for _, p := range append(t.agents[:], t.master) {
		if p.Ended() {
			return false, nil, p.died()
		}
	}
	all = true
	for rank, p := range t.trainers {
		switch {
		case !p.Ended():
			all = false
		case p.Err == nil:
		case p.gaveUp() != "" && t.gaveUp[rank] < maxGaveUp:
			all = false
			gaveUp = append(gaveUp, rank)
		default:
			return false, nil, p.died()
		}
	}
	return all, gaveUp, nil
}

// stopAll ends all processes that still run: trainers, agents, master. It may be called twice.
func (t *team) stopAll(s *story) {
	for _, kind := range []string{"consumer", "careful", "trainer", "agent", "master"} {
		for _, name := range t.stop(kind, grace) {
			s.say("%s did not end in %v after SIGTERM and was killed", name, grace)
		}
	}
}

// cpuShares is the CPU time of each kind of process while trainers ran, as a share of all cores.
func (t *team) cpuShares(took time.Duration) map[string]float64 {
	all := took.Seconds() * float64(runtime.NumCPU())
	shares := map[string]float64{}
	for _, kind := range []string{"trainer", "agent", "master", "consumer", "careful"} {
		if used := t.cpu(kind); used > 0 {
			shares[kind] = used.Seconds() / all
		}
	}
	return shares
}
