package testbroker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/headrace/headrace/internal/remoting"
)

const (
	codeDeleteTopic        = 215
	codeDeleteTopicInNames = 216
	codeDeleteExpired      = 329
	topicReadyWithin       = 3 * time.Minute
)

// CreateTopic creates a topic with so many queues on every master, or gives it more queues. It returns when
// the name server lists all of them.
func (m *RocketMQ) CreateTopic(ctx context.Context, topic string, queues int) error {
	var on []*RocketBroker
	for _, b := range m.brokers {
		if b.id == 0 {
			on = append(on, b)
		}
	}
	return m.CreateTopicOn(ctx, topic, queues, on...)
}

// CreateTopicOn does the same on some brokers.
func (m *RocketMQ) CreateTopicOn(ctx context.Context, topic string, queues int, on ...*RocketBroker) error {
	for _, b := range on {
		if err := m.client.CreateTopic(ctx, b.Addr(), topic, queues); err != nil {
			return fmt.Errorf("creating topic %s on %s: %w", topic, b.name, err)
		}
	}
	return until(ctx, topicReadyWithin, func(ctx context.Context) error {
		r, err := m.client.Route(ctx, topic)
		if err != nil {
			return err
		}
		for _, b := range on {
			if !slices.ContainsFunc(r.Queues, func(q remoting.Queues) bool { return q.Broker == b.name && q.Read == queues }) {
				return fmt.Errorf("topic %s: the name server does not list %d queues on %s yet", topic, queues, b.name)
			}
		}
		return nil
	})
}

// Reaches returns when a queue ends at offset or later: a message can be read only a moment after its
// sender got an answer.
func (b *RocketBroker) Reaches(ctx context.Context, q remoting.Queue, offset int64) error {
	return until(ctx, topicReadyWithin, func(ctx context.Context) error {
		a, err := b.client.Call(ctx, b.Addr(), remoting.MaxOffset(q))
		if err != nil {
			return err
		}
		if head, err := remoting.OffsetOf(a); err != nil || head < offset {
			return fmt.Errorf("queue %d of %s ends at %d and has not reached %d in time (%v)", q.ID, q.Topic, head, offset, err)
		}
		return nil
	})
}

// DeleteTopic deletes a topic from all masters and from the name server.
func (m *RocketMQ) DeleteTopic(ctx context.Context, topic string) error {
	ext := map[string]string{"topic": topic}
	for _, b := range m.brokers {
		if b.id == 0 {
			_, err := m.client.Call(ctx, b.Addr(), &remoting.Command{Code: codeDeleteTopic, Ext: ext})
			if e, ok := errors.AsType[*remoting.Error](err); ok && strings.Contains(e.Remark, "TimerMessageStore") {
				err = nil // without timers 5.3.3 fails in its last step: it would delete the topic's timers
			}
			if err != nil {
				return err
			}
		}
	}
	_, err := m.client.Call(ctx, m.NameServer(), &remoting.Command{Code: codeDeleteTopicInNames, Ext: ext})
	return err
}

// Trim makes the broker delete all files of its commit log but the newest, with messages of all topics. It
// returns when the queue begins at offset or later.
func (b *RocketBroker) Trim(ctx context.Context, q remoting.Queue, offset int64) error {
	if err := b.client.SetConfig(ctx, b.Addr(), map[string]string{"fileReservedTime": "0"}); err != nil {
		return err
	}
	if _, err := b.client.Call(ctx, b.Addr(), &remoting.Command{Code: codeDeleteExpired}); err != nil {
		return err
	}
	err := until(ctx, 3*time.Minute, func(ctx context.Context) error { // a broker begins to delete a minute after its start
		a, err := b.client.Call(ctx, b.Addr(), remoting.MinOffset(q))
		if err != nil {
			return err
		}
		if low, err := remoting.OffsetOf(a); err != nil || low < offset {
			return fmt.Errorf("queue %d of %s still begins at %d and has not reached %d in time (%v)", q.ID, q.Topic, low, offset, err)
		}
		return nil
	})
	return errors.Join(err, b.client.SetConfig(ctx, b.Addr(), map[string]string{"fileReservedTime": "72"}))
}

// LoseOldest kills the broker, removes the oldest file of its commit log, which holds messages of all its
// topics, and starts it again.
func (b *RocketBroker) LoseOldest(ctx context.Context) error {
	if err := b.Kill(); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(b.dir, "store", "commitlog", "*"))
	if err != nil {
		return err
	}
	if len(files) < 2 {
		return fmt.Errorf("the commit log has %d files; the newest one must stay", len(files))
	}
	slices.Sort(files)
	return errors.Join(os.Remove(files[0]), b.Start(ctx))
}

// Backup kills the broker, copies all that it stores, and starts it again. lose puts the copy back in the
// same way. So the broker loses later messages, like a broker that flushes late on a machine that loses
// power.
func (b *RocketBroker) Backup(ctx context.Context) (lose func(context.Context) error, err error) {
	store, backup := filepath.Join(b.dir, "store"), filepath.Join(b.dir, "backup")
	restart := func(ctx context.Context, from, to string) error {
		if err := b.Kill(); err != nil {
			return err
		}
		if err := os.RemoveAll(to); err != nil {
			return err
		}
		if out, err := exec.CommandContext(ctx, "cp", "-a", "--sparse=always", from, to).CombinedOutput(); err != nil {
			return fmt.Errorf("copying %s: %w\n%s", from, err, out)
		}
		return b.Start(ctx)
	}
	return func(ctx context.Context) error { return restart(ctx, backup, store) }, restart(ctx, store, backup)
}

// Admin runs RocketMQ's own mqadmin and returns what it prints.
func (m *RocketMQ) Admin(ctx context.Context, args ...string) (string, error) {
	dir := m.Names.dir
	cmd := exec.CommandContext(ctx, "java", append([]string{"-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Duser.home=" + dir,
		"-Drmq.logback.configurationFile=" + filepath.Join(dir, "logback.xml"), "-cp", filepath.Join(m.lib, "*"),
		"org.apache.rocketmq.tools.command.MQAdminStartup"}, append(args, "-n", m.NameServer())...)...)
	cmd.Env = append(os.Environ(), "ROCKETMQ_HOME="+dir, "NAMESRV_ADDR="+m.NameServer())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("mqadmin %v: %w\n%s", args, err, out)
	}
	return string(out), nil
}

// Logback is a configuration file for Java programs. Without it, the official client logs to the user's
// home folder.
func (m *RocketMQ) Logback() string { return filepath.Join(m.Names.dir, "logback.xml") }

// Classpath has the official client, for Java programs.
func (m *RocketMQ) Classpath() string { return filepath.Join(m.lib, "*") }

func until(ctx context.Context, within time.Duration, ok func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		err := ok(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pollEvery):
		}
	}
}
