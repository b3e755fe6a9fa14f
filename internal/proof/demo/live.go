package demo

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
	"github.com/headrace/headrace/internal/proof/demo/report"
)

// What a demo can read.
const (
	Files    = "files"
	Kafka    = "kafka"
	Pulsar   = "pulsar"
	RocketMQ = "rocketmq"
)

const (
	groupQuiet = 30 * time.Second // without one more row, a consumer group is given up
	askGroup   = time.Second      // how often it is asked whether it is done
)

func (o Options) firstLine() string {
	switch {
	case !live(o.Source):
		return "Headrace: four trainers, one input, one model. A trainer, an agent and the master will be killed."
	case o.Group:
		return "Headrace: four trainers learn from a topic while it is written, and beside them a plain consumer group. A trainer, an agent, the master and the broker will be killed."
	}
	return "Headrace: four trainers learn from a topic while it is written. A trainer, an agent, the master and the broker will be killed."
}

// startLive starts the team, the consumer group, and then the producer: nobody
// finds a record that lay there before.
func (k *killer) startLive(ctx context.Context, o Options, m *clicklog.Manifest) (err error) {
	if err := k.team.startAll(ctx, k.books); err != nil {
		return err
	}
	if o.Group {
		if k.group, err = newGroup(k.team, k.topic); err != nil {
			return err
		}
		if err := k.group.start(0, 1, 2, 3); err != nil {
			return err
		}
		if err := k.group.formed(ctx); err != nil {
			return err
		}
		k.tell.say("beside them the same four as a consumer group, each with its partition")
	}
	k.tell.say("producing %s records/s from now on", report.Thousands(producedPer))
	return k.topic.produce(ctx, k.team.folders, m)
}

// groupWatch follows the consumer group's journals. A nil one sees nothing.
type groupWatch struct {
	*watch
	done  bool
	asked time.Time
}

func (g *group) watch(truth *clicklog.Truth) *groupWatch {
	if g == nil {
		return nil
	}
	return &groupWatch{watch: newWatch(g.groupJournals(), truth)}
}

func (g *groupWatch) close() {
	if g != nil {
		g.watch.close()
	}
}

func (g *groupWatch) look() error {
	if g == nil {
		return nil
	}
	return g.watch.look()
}

// besides is what progress shows behind ours.
func (k *killer) besides(g *groupWatch) string {
	var b strings.Builder
	if k.topic != nil {
		fmt.Fprintf(&b, "  produced %3.0f %%", 100*float64(k.topic.producer.Records())/float64(k.topic.producer.Manifest.Records))
	}
	if g != nil {
		fmt.Fprintf(&b, "  group %3.0f %%", 100*g.share())
	}
	return b.String()
}

// live says whether all is over: every record is in our model, and the consumer
// group has either got as far or says that it is done.
func (k *killer) live(ctx context.Context, w *watch, g *groupWatch) (bool, error) {
	if err := k.topic.failed(); err != nil {
		return false, err
	}
	if err := k.group.ended(); err != nil {
		return false, err
	}
	if !w.all() {
		return false, nil
	}
	if g == nil || g.done || g.all() {
		return true, nil
	}
	quiet := time.Since(g.changed)
	if quiet > groupQuiet {
		k.tell.say("the consumer group has learned nothing for %v and is not waited for", groupQuiet)
		return true, nil
	}
	if quiet > askGroup && time.Since(g.asked) > askGroup {
		g.asked = time.Now()
		g.done = k.topic.groupDone(ctx, w.truth.Records)
	}
	return g.done, nil
}

// settled asks the master how much of the dataset is settled, of how much; of a
// topic, when the last steps had time to get there.
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
	if k.group != nil {
		f.Group = k.group.groupJournals()
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
