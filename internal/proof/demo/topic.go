package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/internal/proof/child"
	"github.com/headrace/headrace/internal/proof/demo/clicklog"
	"github.com/headrace/headrace/internal/proof/demo/produce"
	"github.com/headrace/headrace/internal/proof/demo/report"
)

// The topic, and the rate of its records: half of what the trainers can read, so that they catch up after
// a kill.
const (
	topicName   = "clicks"
	partitions  = 4
	stripe      = 128 // records that one partition gets in a row
	producedPer = 10_000.0
	groupNames  = "plain-trainers-" // begins a group's name at the broker
	// No record is known to be the last one, so the last batch is not full. The trainers of the
	// consumer groups wait as long for a full batch.
	topicMaxWait = time.Second
)

// topicRates are equal, because a consumer group gives each consumer the same share, whatever its speed.
var topicRates = [trainers]float64{5_000, 5_000, 5_000, 5_000}

// topic is the broker of a demo that reads a topic, and the producer.
type topic struct {
	queue    queue
	broker   broker
	producer *produce.Producer
	stop     context.CancelFunc
	produced chan error // gets one value: the producer's error, or nil
}

// startTopic starts a broker for the demo, with an empty topic.
func startTopic(ctx context.Context, s *story, q queue) (*topic, error) {
	s.say("starting %s on this machine, one broker in a folder of its own ...", q.name)
	b, err := q.start(ctx)
	if err != nil {
		return nil, interrupted(ctx, fmt.Errorf("the demo's broker: %w", err))
	}
	if err := b.createTopic(ctx, topicName, partitions); err != nil {
		return nil, interrupted(ctx, errors.Join(err, b.Close()))
	}
	s.say("process %d at %s, topic %s with %d partitions", b.PID(), b.where(), topicName, partitions)
	return &topic{queue: q, broker: b, stop: func() {}}, nil
}

// produce starts to write the log into the topic.
func (t *topic) produce(ctx context.Context, dirs folders, m *clicklog.Manifest) error {
	if err := m.SetTopic(dirs.log, dirs.truth, clicklog.Topic{Name: topicName, Partitions: partitions, Stripe: stripe, Format: t.broker.partition()}); err != nil {
		return err
	}
	w, err := t.broker.writer(topicName)
	if err != nil {
		return err
	}
	t.producer = &produce.Producer{Writer: w, Manifest: m, LogDir: dirs.log, TruthDir: dirs.truth, Rate: producedPer}
	ctx, t.stop = context.WithCancel(ctx)
	t.produced = make(chan error, 1)
	go func() { t.produced <- t.producer.Run(ctx) }() // ends with stop
	return nil
}

// failed is the error of a producer that has ended early. nil: it has not.
func (t *topic) failed() error {
	select {
	case err := <-t.produced:
		t.produced <- err
		if err != nil {
			return fmt.Errorf("the producer has ended: %w", err)
		}
	default:
	}
	return nil
}

// close ends the producer, then the broker.
func (t *topic) close() error {
	t.stop()
	if t.produced != nil {
		<-t.produced
	}
	return t.broker.Close()
}

// groupDone reports whether a group has told the broker that it is done.
func (t *topic) groupDone(ctx context.Context, r rival, records int) bool {
	return t.broker.groupDone(ctx, topicName, groupNames+r.name, t.producer.Manifest.Topic.Heads(records))
}

// killBroker ends the broker and starts it again on the same folder.
func (k *killer) killBroker(ctx context.Context) error {
	b := k.topic.broker
	kill := report.Kill{What: "broker", Name: "broker", PID: b.PID(), At: child.Monotonic()}
	if err := b.Kill(); err != nil {
		return err
	}
	k.tell.say("SIGKILL to the broker (process %d), with %s records in it", kill.PID, report.Thousands(k.topic.producer.Records()))
	if err := pause(ctx, restartPause); err != nil {
		return err
	}
	if err := b.Start(ctx); err != nil {
		return err
	}
	kill.Back = child.Monotonic()
	k.tell.say("the broker is started again, on the same folder, and answers %s after the kill", ms(kill.Back-kill.At))
	for _, g := range k.groups {
		if err := g.note(kill); err != nil {
			return err
		}
	}
	return k.note(kill)
}
