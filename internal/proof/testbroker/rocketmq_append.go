package testbroker

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"
	"time"

	"github.com/headrace/headrace/internal/remoting"
)

const (
	codeSend      = 310
	codeSendBatch = 320
	codeFlushing  = 10 // this code and the next two: stored, but not yet on the disk or the slave
	sendWithin    = time.Minute
)

// RocketAppender writes each record of a topic's queues once, even if the broker is killed during a
// request. If it does not know what became of a request, it looks where the queue ends. So nothing else
// may write to the topic. It is used by one goroutine.
//
// It does not use the official producer, which notices a closed connection only after its timeout.
type RocketAppender struct {
	topic  string
	broker *RocketBroker
	client *remoting.Client
}

// NewAppender makes an appender for the queues that a topic has on this broker.
func (b *RocketBroker) NewAppender(topic string) *RocketAppender {
	o := remoting.Options{NameServers: b.client.NameServers(), Answer: sendWithin}
	if b.opts.ACL {
		o.Credentials = remoting.Credentials{AccessKey: User, SecretKey: Password}
	}
	return &RocketAppender{topic, b, remoting.NewClient(o)}
}

// Close closes its connections.
func (a *RocketAppender) Close() { a.client.Close() }

// Append appends values, in one batch, to a queue that ends at end. It tries until they are there or ctx
// ends, and calls sending before each try.
func (a *RocketAppender) Append(ctx context.Context, queue int, end int64, values [][]byte, sending func()) error {
	for {
		sending()
		first, why := a.try(ctx, queue, values)
		if why == nil {
			if first != end {
				return a.notAlone(queue, first, end)
			}
			return nil
		}
		if err := wait(ctx, why); err != nil {
			return err
		}
		at, err := a.End(ctx, queue)
		if err != nil {
			return err
		}
		left, ok := notWritten(values, end, at)
		if !ok {
			return a.notAlone(queue, at, end)
		}
		if end, values = at, left; len(values) == 0 {
			return nil
		}
	}
}

// notWritten returns the values that a queue lacks, if it ended at end before them and ends at at now. A
// broker that is killed may have written only the first messages of a batch.
func notWritten(values [][]byte, end, at int64) ([][]byte, bool) {
	if at < end || at > end+int64(len(values)) {
		return nil, false
	}
	return values[at-end:], true
}

func (a *RocketAppender) notAlone(queue int, at, end int64) error {
	return fmt.Errorf("%s/%s/%d ends at offset %d and must end at %d: another program writes to it", a.topic, a.broker.name, queue, at, end)
}

// try sends one request and returns the offset of the first message.
func (a *RocketAppender) try(ctx context.Context, queue int, values [][]byte) (int64, error) {
	cmd := &remoting.Command{Code: codeSend, Ext: map[string]string{
		"a": "appender", "b": a.topic, "c": "TBW102", "d": "4", "e": strconv.Itoa(queue), "f": "0",
		"g": strconv.FormatInt(time.Now().UnixMilli(), 10), "h": "0", "i": "", "j": "0", "k": "false", "l": "0", "m": "false", "n": a.broker.name}}
	if cmd.Body = values[0]; len(values) > 1 {
		cmd.Code, cmd.Ext["m"], cmd.Body = codeSendBatch, "true", batchOf(values)
	}
	p, err := a.client.Start(ctx, a.broker.Addr(), cmd)
	if err != nil {
		return 0, err
	}
	answer, err := p.Wait(ctx, sendWithin)
	if err != nil {
		return 0, err
	}
	if answer.Code != remoting.OK && (answer.Code < codeFlushing || answer.Code > codeFlushing+2) {
		return 0, &remoting.Error{Addr: a.broker.Addr(), Code: answer.Code, Remark: answer.Remark}
	}
	return strconv.ParseInt(answer.Ext["queueOffset"], 10, 64)
}

// batchOf is the body of a batch. For each message it has the length, three words that are not used here
// (magic, checksum, flag), the value, and no properties.
func batchOf(values [][]byte) []byte {
	var b []byte
	for _, v := range values {
		b = binary.BigEndian.AppendUint32(b, uint32(4*5+len(v)+2))
		b = append(b, make([]byte, 12)...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
		b = append(append(b, v...), 0, 0)
	}
	return b
}

// End gives the end of a queue, after every record for which the broker has sent an answer. It asks until
// the broker answers or ctx ends.
func (a *RocketAppender) End(ctx context.Context, queue int) (int64, error) {
	q := remoting.Queue{Topic: a.topic, ID: queue}
	for {
		err := a.client.Dispatched(ctx, a.broker.Addr())
		var answer remoting.Command
		if err == nil {
			answer, err = a.client.Call(ctx, a.broker.Addr(), remoting.MaxOffset(q))
		}
		if err == nil {
			return remoting.OffsetOf(answer)
		}
		if err := wait(ctx, fmt.Errorf("where %s/%s/%d ends: %w", a.topic, a.broker.name, queue, err)); err != nil {
			return 0, err
		}
	}
}
