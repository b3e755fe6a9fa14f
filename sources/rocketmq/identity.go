package rocketmq

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
)

// partition is one queue of one topic on one broker. RocketMQ has no ids, only names.
type partition struct {
	cluster, broker, topic string
	queue                  int
}

func (p partition) id() sources.PartitionID {
	return sources.PartitionID(fmt.Sprintf("rocketmq:%s/%s/%s/%d", p.cluster, p.broker, p.topic, p.queue))
}

// String returns the partition as people write it.
func (p partition) String() string { return fmt.Sprintf("%s/%s/%d", p.topic, p.broker, p.queue) }

// names are those that a spec may give it: clicks/broker-a/3, broker-a/3 or 3.
func (p partition) names() []string {
	queue := strconv.Itoa(p.queue)
	return []string{p.String(), p.broker + "/" + queue, queue}
}

func (p partition) remote() remoting.Queue { return remoting.Queue{Topic: p.topic, ID: p.queue} }

// print is a fingerprint of the messages for which a segment was planned. It detects a topic
// that was deleted and made again: RocketMQ gives the new topic no id of its own. A
// broker's commit log only grows. So a planned message lies at or below the place of the
// last planned one, and the messages of a topic that was made again lie above it. Example:
// the last planned message, offset 99, lies at place 5000. A message with offset 40 at
// place 8000 is not a planned one.
type print struct {
	end   int64 // the planned end: queue offsets below it are checked; 0: none
	place int64 // in the commit log, of the message before end
}

// fits says whether a message may be a planned one.
func (f print) fits(m *message) bool { return m.queueOffset >= f.end || m.place <= f.place }

const locatorVersion = 1

// locator opens the partition on any node.
func (p partition) locator(f print) []byte {
	b := []byte{locatorVersion}
	b = binary.BigEndian.AppendUint32(b, uint32(p.queue))
	b = binary.BigEndian.AppendUint64(b, uint64(f.end))
	b = binary.BigEndian.AppendUint64(b, uint64(f.place))
	for _, name := range []string{p.cluster, p.broker, p.topic} {
		b = binary.BigEndian.AppendUint16(b, uint16(len(name)))
		b = append(b, name...)
	}
	return b
}

var errLocator = errors.New("rocketmq: damaged locator")

func parseLocator(b []byte) (p partition, f print, err error) {
	const fixed = 1 + 4 + 8 + 8
	if len(b) < fixed {
		return p, f, fmt.Errorf("%w: %d bytes", errLocator, len(b))
	}
	if b[0] != locatorVersion {
		return p, f, fmt.Errorf("rocketmq: locator of version %d; this version of headrace reads %d", b[0], locatorVersion)
	}
	p.queue = int(binary.BigEndian.Uint32(b[1:]))
	f = print{int64(binary.BigEndian.Uint64(b[5:])), int64(binary.BigEndian.Uint64(b[13:]))}
	rest := b[fixed:]
	for _, into := range []*string{&p.cluster, &p.broker, &p.topic} {
		if len(rest) < 2 || len(rest)-2 < int(binary.BigEndian.Uint16(rest)) {
			return p, f, fmt.Errorf("%w: %d bytes", errLocator, len(b))
		}
		n := 2 + int(binary.BigEndian.Uint16(rest))
		*into, rest = string(rest[2:n]), rest[n:]
	}
	if len(rest) > 0 {
		return p, f, fmt.Errorf("%w: %d bytes too many", errLocator, len(rest))
	}
	return p, f, nil
}
