package remoting

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// Request codes.
const (
	codePull         = 11
	codeQueryOffset  = 14
	codeUpdateOffset = 15
	codeCreateTopic  = 17
	codeBrokerConfig = 26
	codeRuntime      = 28
	codeSearchOffset = 29
	codeMaxOffset    = 30
	codeMinOffset    = 31
	codeUpdateConfig = 25
	codeSend         = 310
)

// Queue is one queue of a topic.
type Queue struct {
	Topic string
	ID    int
}

func (q Queue) ext(more map[string]string) map[string]string {
	ext := map[string]string{"topic": q.Topic, "queueId": strconv.Itoa(q.ID)}
	maps.Copy(ext, more)
	return ext
}

// Send makes a request to store a message. Its key can be searched for.
func Send(q Queue, broker, group, key string, body []byte, nowMS int64) *Command {
	return &Command{Code: codeSend, Body: body, Ext: map[string]string{ // the names of SendMessageRequestHeaderV2
		"a": group, "b": q.Topic, "c": "TBW102", "d": "4", "e": strconv.Itoa(q.ID), "f": "0", "g": strconv.FormatInt(nowMS, 10), "h": "0",
		"i": "KEYS\x01" + key + "\x02", "j": "0", "k": "false", "l": "0", "m": "false", "n": broker}}
}

// Flags of a pull.
const (
	flagSuspend      = 2 // the broker keeps the request until something comes
	flagSubscription = 4
)

// Pull asks for messages from an offset on. It commits nothing.
type Pull struct {
	Queue
	Group  string
	Offset int64
	Most   int // messages; the broker may give fewer
	// SuspendMS is how long the broker may keep the request at the head of the queue.
	SuspendMS int
}

// Command makes the request.
func (p Pull) Command() *Command {
	flags := flagSubscription
	if p.SuspendMS > 0 {
		flags |= flagSuspend
	}
	return &Command{Code: codePull, Ext: p.ext(map[string]string{
		"consumerGroup": p.Group, "queueOffset": strconv.FormatInt(p.Offset, 10), "maxMsgNums": strconv.Itoa(p.Most),
		"sysFlag": strconv.Itoa(flags), "commitOffset": "0", "suspendTimeoutMillis": strconv.Itoa(p.SuspendMS),
		"subscription": "*", "subVersion": "0", "expressionType": "TAG"})}
}

// Pulled is the answer to a pull.
type Pulled struct {
	Code           int
	Remark         string
	Next, Min, Max int64 // valid with the codes 0, 19, 20 and 21
	Body           []byte
}

// PulledOf reads an answer.
func PulledOf(a Command) (Pulled, error) {
	p := Pulled{Code: a.Code, Remark: a.Remark, Body: a.Body}
	if a.Code != OK && a.Code != PullNotFound && a.Code != PullRetry && a.Code != PullMoved {
		return p, nil
	}
	for name, into := range map[string]*int64{"nextBeginOffset": &p.Next, "minOffset": &p.Min, "maxOffset": &p.Max} {
		var err error
		if *into, err = strconv.ParseInt(a.Ext[name], 10, 64); err != nil {
			return p, fmt.Errorf("answer to a pull: %s is %q", name, a.Ext[name])
		}
	}
	return p, nil
}

// MinOffset and MaxOffset make requests for where a queue begins and ends. A broker
// that does not know the topic or the queue answers 0: ask for the route first.
func MinOffset(q Queue) *Command { return &Command{Code: codeMinOffset, Ext: q.ext(nil)} }
func MaxOffset(q Queue) *Command { return &Command{Code: codeMaxOffset, Ext: q.ext(nil)} }

// SearchOffset makes a request for the first offset that was stored at ms or later.
func SearchOffset(q Queue, ms int64) *Command {
	return &Command{Code: codeSearchOffset, Ext: q.ext(map[string]string{"timestamp": strconv.FormatInt(ms, 10), "boundaryType": "LOWER"})}
}

// UpdateOffset makes a request to store a group's offset. The broker takes any.
func UpdateOffset(q Queue, group string, offset int64) *Command {
	return &Command{Code: codeUpdateOffset, Ext: q.ext(map[string]string{"consumerGroup": group, "commitOffset": strconv.FormatInt(offset, 10)})}
}

// QueryOffset makes a request for a group's offset. The code is NoOffset where the
// group has none.
func QueryOffset(q Queue, group string) *Command {
	return &Command{Code: codeQueryOffset, Ext: q.ext(map[string]string{"consumerGroup": group, "setZeroIfNotFound": "false"})}
}

// OffsetOf reads an answer that holds an offset.
func OffsetOf(a Command) (int64, error) {
	n, err := strconv.ParseInt(a.Ext["offset"], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("an answer holds the offset %q", a.Ext["offset"])
	}
	return n, nil
}

// Permissions of a topic.
const ReadWrite = 6

// CreateTopic makes a topic on one broker, or gives it more queues.
func (c *Client) CreateTopic(ctx context.Context, addr, topic string, queues int) error {
	n := strconv.Itoa(queues)
	_, err := c.Call(ctx, addr, &Command{Code: codeCreateTopic, Ext: map[string]string{"topic": topic, "defaultTopic": "TBW102",
		"readQueueNums": n, "writeQueueNums": n, "perm": strconv.Itoa(ReadWrite), "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}})
	return err
}

// Config is a broker's configuration.
func (c *Client) Config(ctx context.Context, addr string) (map[string]string, error) {
	a, err := c.Call(ctx, addr, &Command{Code: codeBrokerConfig})
	if err != nil {
		return nil, err
	}
	return properties(string(a.Body)), nil
}

// SetConfig changes a broker's configuration, which writes its file anew.
func (c *Client) SetConfig(ctx context.Context, addr string, set map[string]string) error {
	var b strings.Builder
	for k, v := range set {
		fmt.Fprintf(&b, "%s=%s\n", k, v)
	}
	_, err := c.Call(ctx, addr, &Command{Code: codeUpdateConfig, Body: []byte(b.String())})
	return err
}

// Runtime is what a broker says about its state. In its first second a broker has counted
// nothing yet, and fails at the question; then it is asked again, for some seconds.
func (c *Client) Runtime(ctx context.Context, addr string) (map[string]string, error) {
	for tries := 1; ; tries++ {
		a, err := c.Call(ctx, addr, &Command{Code: codeRuntime})
		if err == nil {
			return table(a.Body)
		}
		// StoreStatsService.getLast() of 5.3.3: its lists are empty until they are first filled.
		if e, ok := errors.AsType[*Error](err); tries == runtimeTries || !ok || e.Code != SystemError || !strings.Contains(e.Remark, "NoSuchElementException") {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(runtimeAgainAfter):
		}
	}
}

const (
	runtimeAgainAfter = 50 * time.Millisecond
	runtimeTries      = 100
)

func properties(text string) map[string]string {
	all := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			all[k] = v
		}
	}
	return all
}
func table(body []byte) (map[string]string, error) {
	var said struct {
		Table map[string]string `json:"table"`
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return nil, fmt.Errorf("a broker's table: %w", err)
	}
	return said.Table, nil
}
