package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
	"github.com/headrace/headrace/internal/proof/demo/report"
)

// The kinds of input of a demo.
const (
	Files    = "files"
	Kafka    = "kafka"
	Pulsar   = "pulsar"
	RocketMQ = "rocketmq"
)

const (
	groupQuiet = 30 * time.Second // if a consumer group learns nothing for so long, we do not wait for it
	askGroup   = time.Second      // how often the broker is asked whether a group is done
)

func (o Options) firstLine() string {
	switch {
	case !live(o.Source):
		return "Headrace: four trainers, one input, one model. A trainer, an agent and the master will be killed."
	case o.Group:
		return "Headrace: four trainers learn from a topic while it is written, and beside them plain consumer groups. A trainer, an agent, the master and the broker will be killed."
	}
	return "Headrace: four trainers learn from a topic while it is written. A trainer, an agent, the master and the broker will be killed."
}

// startLive starts the team and the consumer groups, and after them the producer: no group finds records
// that were there before.
func (k *killer) startLive(ctx context.Context, o Options, m *clicklog.Manifest) (err error) {
	if err := k.team.startAll(ctx, k.books); err != nil {
		return err
	}
	if o.Group {
		for _, r := range k.topic.queue.rivals {
			g, err := newGroup(k.team, k.topic, r)
			if err != nil {
				return err
			}
			k.groups = append(k.groups, g)
			if err := g.start(0, 1, 2, 3); err != nil {
				return err
			}
		}
		for _, g := range k.groups {
			if err := g.formed(ctx); err != nil {
				return err
			}
			k.tell.say("beside them the same four as a consumer group (%s), each with its partition", g.rival.title)
		}
	}
	k.tell.say("producing %s records/s from now on", report.Thousands(producedPer))
	return k.topic.produce(ctx, k.team.folders, m)
}

// groupWatch follows one consumer group's journals.
type groupWatch struct {
	*watch
	group *group
	done  bool
	asked time.Time
}

// groupWatches follow all consumer groups.
type groupWatches []*groupWatch

func (all groupWatches) close() {
	for _, g := range all {
		g.close()
	}
}

func (all groupWatches) look() error {
	for _, g := range all {
		if err := g.look(); err != nil {
			return err
		}
	}
	return nil
}

// besides is the part of the progress line after ours.
func (k *killer) besides(groups groupWatches) string {
	var b strings.Builder
	if k.topic != nil {
		fmt.Fprintf(&b, "  produced %3.0f %%", 100*float64(k.topic.producer.Records())/float64(k.topic.producer.Manifest.Records))
	}
	for _, g := range groups {
		fmt.Fprintf(&b, "  %s %3.0f %%", g.group.rival.name, 100*g.share())
	}
	return b.String()
}

// live reports whether the demo is over: every record is in our model, and each consumer group has learned
// all records, or has committed all, or is not waited for any more.
func (k *killer) live(ctx context.Context, w *watch, groups groupWatches) (bool, error) {
	if err := k.topic.failed(); err != nil {
		return false, err
	}
	for _, g := range k.groups {
		if err := g.ended(); err != nil {
			return false, err
		}
	}
	over := w.all()
	for _, g := range groups {
		over = over && k.over(ctx, g)
	}
	return over, nil
}

// over reports whether a consumer group has learned all records or will learn no more.
func (k *killer) over(ctx context.Context, g *groupWatch) bool {
	if g.done || g.all() {
		return true
	}
	quiet := time.Since(g.changed)
	if quiet > groupQuiet {
		k.tell.say("%s has learned nothing for %v: the demo does not wait for it", g.group.rival.title, groupQuiet)
		g.done = true
	} else if quiet > askGroup && time.Since(g.asked) > askGroup {
		g.asked = time.Now()
		g.done = k.topic.groupDone(ctx, g.group.rival, g.truth.Records)
	}
	return g.done
}

// settled asks the master how much of the dataset is settled, of how much. With a topic it waits until
// the last steps have reached the master.
func (k *killer) settled(ctx context.Context, records int64) (settled, listed int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		settled, listed, err = k.books.settled(ctx)
		if k.topic == nil || err != nil || settled >= records || pause(ctx, poll) != nil {
			return settled, listed, err
		}
	}
}

func (k *killer) reportFolders() report.Folders {
	f := report.Folders{Truth: k.team.truth, Journals: k.team.journals}
	for _, g := range k.groups {
		f.Groups = append(f.Groups, g.journals())
	}
	return f
}

// paces lists rates.
func paces(rates [trainers]float64) string {
	var all []string
	for _, r := range rates {
		all = append(all, report.Thousands(int(r)))
	}
	return strings.Join(all[:trainers-1], ", ") + " and " + all[trainers-1]
}
