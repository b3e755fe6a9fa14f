package chunk

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"path"
	"strconv"
	"strings"
	"time"
)

// Key is where a chunk lies on storage:
//
//	<stream>/<partition>/<hour>/<transaction>-<ms>-<random>
//
// The stream names the records of one dataset for good; another dataset of the same name
// has another. The key says for which transaction the chunk was staged, so that no other
// transaction can commit it. It also says when, so that a chunk that nobody has committed
// can be deleted.
type Key struct {
	Stream      string
	Partition   int
	Transaction string // TransactionSum of its id
	At          time.Time
	random      string
}

// TransactionSum is 16 hex digits of a transaction's id.
func TransactionSum(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:8])
}

// NewKey is a key that nobody has.
func NewKey(stream string, partition int, transaction string, at time.Time) Key {
	return Key{stream, partition, TransactionSum(transaction), time.UnixMilli(at.UnixMilli()), strings.ToLower(rand.Text()[:16])}
}

func (k Key) String() string {
	ms := k.At.UnixMilli()
	return fmt.Sprintf("%s/%d/%d/%s-%d-%s", k.Stream, k.Partition, ms/time.Hour.Milliseconds(), k.Transaction, ms, k.random)
}

// ParseKey reads a key.
func ParseKey(s string) (k Key, err error) {
	part := strings.Split(s, "/")
	if len(part) == 4 {
		name := strings.Split(part[3], "-")
		if len(name) == 3 {
			k.Stream, k.Transaction, k.random = part[0], name[0], name[2]
			var ms int64
			var errs [2]error
			k.Partition, errs[0] = strconv.Atoi(part[1])
			ms, errs[1] = strconv.ParseInt(name[1], 10, 64)
			k.At = time.UnixMilli(ms)
			if errors.Join(errs[:]...) == nil && k.String() == s {
				return k, nil
			}
		}
	}
	return Key{}, fmt.Errorf("%q is not the key of a chunk", s)
}

// PartitionID is the identity of one partition of a stream.
func PartitionID(stream string, partition int) string {
	return fmt.Sprintf("landing:%s/%d", stream, partition)
}

// PartitionID is the identity of the chunk's partition.
func (k Key) PartitionID() string { return PartitionID(k.Stream, k.Partition) }

// Locator says all that a reader needs of a chunk.
type Locator struct {
	Key     string
	Size    int64  // bytes on storage
	Records int    // in it
	Sum     uint32 // Header.Sum
}

// String is "1 KEY SIZE RECORDS SUM"; the sum has eight hex digits.
func (l Locator) String() string {
	return fmt.Sprintf("1 %s %d %d %08x", l.Key, l.Size, l.Records, l.Sum)
}

// ParseLocator reads a locator.
func ParseLocator(s string) (l Locator, k Key, err error) {
	part := strings.Split(s, " ")
	if len(part) != 5 || part[0] != "1" {
		return l, k, fmt.Errorf("%q is not the locator of a chunk", s)
	}
	if k, err = ParseKey(part[1]); err != nil {
		return l, k, err
	}
	l.Key = part[1]
	var errs [3]error
	var sum uint64
	l.Size, errs[0] = strconv.ParseInt(part[2], 10, 64)
	l.Records, errs[1] = strconv.Atoi(part[3])
	sum, errs[2] = strconv.ParseUint(part[4], 16, 32)
	l.Sum = uint32(sum)
	if errors.Join(errs[:]...) != nil || l.String() != s || l.Records < 1 || l.Records > Most || l.Size < HeaderSize || l.Size > HeaderSize+MaxBytes {
		return l, k, fmt.Errorf("%q is not the locator of a chunk", s)
	}
	return l, k, nil
}

// Name is what people call the chunk.
func (k Key) Name() string { return path.Base(k.String()) }

// Fits is nil if b is the beginning of the chunk that the locator names.
func (l Locator) Fits(b []byte) error {
	h, err := ReadHeader(b)
	if err == nil && (h.Sum != l.Sum || h.Records != l.Records || int64(HeaderSize+h.Body) != l.Size) {
		err = fmt.Errorf("it has %d records, %d bytes and checksum %08x, not %d, %d and %08x", h.Records, HeaderSize+h.Body, h.Sum, l.Records, l.Size, l.Sum)
	}
	return err
}

// FirstOf returns the fallback (see PartitionOf) for the first chunk of a transaction. Each
// further chunk adds 1. The first one differs between transactions: otherwise all transactions
// that are smaller than a chunk would go to partition 0.
func FirstOf(transaction string) int {
	return int(crc32.ChecksumIEEE([]byte(transaction)) & math.MaxInt32)
}

// PartitionOf is where a record with this key goes: CRC-32 (IEEE) of the key, modulo the
// number of partitions. A record without a key (nil) goes to fallback, modulo the same.
func PartitionOf(key []byte, partitions, fallback int) int {
	if key == nil {
		return fallback % partitions
	}
	return int(crc32.ChecksumIEEE(key) % uint32(partitions))
}
