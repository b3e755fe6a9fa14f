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

// The topic, and how fast its records come: half of what the trainers can do, so
// that they catch up after a kill.
const (
	topicName   = "clicks"
	partitions  = 4
	stripe      = 128 // records that a partition gets at once
	producedPer = 10_000.0
	groupNames  = "plain-trainers-" // at the broker, before a rival's name
	// Nobody says that a record is the last one, so the last batch is not full. The
	// consumer groups' trainers wait as long.
	topicMaxWait = time.Second
)

// topicRates: a consumer group gives each consumer the same share whatever its
// speed, so beside one all trainers are equal.
var topicRates = [trainers]float64{5_000, 5_000, 5_000, 5_000}

// topic is the broker of a demo that reads a topic, and who writes to it.
type topic struct {
	queue    queue
	broker   broker
	producer *produce.Producer
	stop     context.CancelFunc
	produced chan error // one value: how the producer has ended
}

// startTopic starts a broker of the demo's own with an empty topic.
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

// produce begins to write the log into the topic.
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

// failed is why the producer has ended early, nil if it has not.
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

// groupDone says whether a rival has told the broker that it is done.
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
