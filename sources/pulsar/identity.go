package pulsar

import (
	"encoding/binary"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/headrace/headrace/sources"
)

// partition is one topic without partitions, or one partition of a topic. A topic
// that was deleted and made again has another time of creation.
type partition struct {
	topic   string // tenant/namespace/topic, with -partition-N
	created int64  // ms since the epoch
}

func (p partition) id() sources.PartitionID {
	return sources.PartitionID(fmt.Sprintf("pulsar:%s@%d", p.topic, p.created))
}

func parsePartition(id sources.PartitionID) (p partition, err error) {
	text, ok := strings.CutPrefix(string(id), "pulsar:")
	i := strings.LastIndexByte(text, '@')
	if !ok || i < 0 {
		return p, fmt.Errorf("pulsar: %q is no partition", id)
	}
	p.topic = text[:i]
	p.created, err = strconv.ParseInt(text[i+1:], 10, 64)
	return p, err
}

// String returns the partition as people write it, without the default tenant and namespace.
func (p partition) String() string { return shortName(p.topic) }

func shortName(topic string) string { return strings.TrimPrefix(topic, "public/default/") }

// url returns the name that Pulsar's clients use.
func (p partition) url() string { return "persistent://" + p.topic }

// createdAt returns when the topic was made, for people.
func (p partition) createdAt() string {
	return time.UnixMilli(p.created).UTC().Format("2006-01-02T15:04:05.000Z")
}

const locatorVersion = 1

// locator opens a ledger of the partition on any node.
func (p partition) locator(ledger int64) []byte {
	b := []byte{locatorVersion}
	b = binary.BigEndian.AppendUint64(b, uint64(p.created))
	b = binary.BigEndian.AppendUint64(b, uint64(ledger))
	return append(b, p.topic...)
}

func parseLocator(b []byte) (p partition, ledger int64, err error) {
	const fixed = 1 + 8 + 8
	if len(b) <= fixed {
		return p, 0, fmt.Errorf("pulsar: damaged locator: %d bytes", len(b))
	}
	if b[0] != locatorVersion {
		return p, 0, fmt.Errorf("pulsar: locator of version %d; this version of headrace reads %d", b[0], locatorVersion)
	}
	p = partition{topic: string(b[fixed:]), created: int64(binary.BigEndian.Uint64(b[1:]))}
	return p, int64(binary.BigEndian.Uint64(b[9:])), nil
}

// fullName adds the tenant and the namespace that Pulsar's clients add.
func fullName(topic string) string {
	topic = strings.TrimPrefix(topic, "persistent://")
	if !strings.Contains(topic, "/") {
		topic = "public/default/" + topic
	}
	return topic
}

// adminPath returns the topic as a path of the admin API.
func adminPath(topic string) string {
	tenant, rest, _ := strings.Cut(topic, "/")
	namespace, name, _ := strings.Cut(rest, "/")
	return "persistent/" + tenant + "/" + namespace + "/" + url.PathEscape(name)
}

// transactionsPath is where the third version of the admin API tells about a topic's
// transactions.
func transactionsPath(topic string) string {
	return "/admin/v3/transactions/transactionBufferStats/" + strings.TrimPrefix(adminPath(topic), "persistent/")
}
