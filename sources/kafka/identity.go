package kafka

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/headrace/headrace/sources"
)

// topicID identifies a topic. A name may be given to another topic later.
type topicID [16]byte

func (id topicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// partition is one partition of one topic of one cluster.
type partition struct {
	cluster string
	topic   topicID
	name    string // of the topic, for people and for finding the leader
	number  int32
}

func (p partition) id() sources.PartitionID {
	return sources.PartitionID(fmt.Sprintf("kafka:%s/%s/%d", p.cluster, p.topic, p.number))
}

// String is the partition as people write it.
func (p partition) String() string { return fmt.Sprintf("%s/%d", p.name, p.number) }

// names are those that a spec may give it: clicks/3, or 3.
func (p partition) names() []string { return []string{p.String(), strconv.Itoa(int(p.number))} }

const locatorVersion = 1

// locator opens the partition on any node.
func (p partition) locator() []byte {
	b := []byte{locatorVersion}
	b = append(b, p.topic[:]...)
	b = binary.BigEndian.AppendUint32(b, uint32(p.number))
	b = append(b, byte(len(p.name))) // topics have at most 249 bytes
	b = append(b, p.name...)
	return append(b, p.cluster...)
}

func parseLocator(b []byte) (partition, error) {
	const fixed = 1 + 16 + 4 + 1
	if len(b) < fixed {
		return partition{}, fmt.Errorf("kafka: damaged locator: %d bytes", len(b))
	}
	if b[0] != locatorVersion {
		return partition{}, fmt.Errorf("kafka: locator of version %d; this version of headrace reads %d", b[0], locatorVersion)
	}
	n := fixed + int(b[fixed-1])
	if len(b) <= n {
		return partition{}, fmt.Errorf("kafka: damaged locator: %d bytes", len(b))
	}
	p := partition{number: int32(binary.BigEndian.Uint32(b[17:])), name: string(b[fixed:n]), cluster: string(b[n:])}
	copy(p.topic[:], b[1:])
	return p, nil
}
