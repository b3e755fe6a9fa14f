package clicklog

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// truthEntry is the size of one record in a .truth file: offset int64, checksum uint64, label byte,
// little-endian.
const truthEntry = 17

// Truth is what Write wrote. Record i of the log begins at Offsets[i] of its file. Records are numbered
// from 0, through all files in order.
type Truth struct {
	Manifest
	Offsets []int64
	Checks  []uint64
	Labels  []byte
	Lines   []uint32 // CRC-32 of each record's bytes; only with a topic
	byName  map[string]File
}

// ReadTruth reads the truth that Write left in dir.
func ReadTruth(dir string) (*Truth, error) {
	text, err := os.ReadFile(filepath.Join(dir, manifestName))
	if err != nil {
		return nil, fmt.Errorf("the truth about the click log: %w", err)
	}
	t := &Truth{byName: map[string]File{}}
	if err := json.Unmarshal(text, &t.Manifest); err != nil {
		return nil, fmt.Errorf("%s: %w", manifestName, err)
	}
	for _, f := range t.Files {
		raw, err := os.ReadFile(filepath.Join(dir, truthName(f)))
		if err != nil {
			return nil, err
		}
		if len(raw) != f.Records*truthEntry || f.First != len(t.Offsets) {
			return nil, fmt.Errorf("%s has %d bytes, which do not fit its %d records from number %d on", truthName(f), len(raw), f.Records, f.First)
		}
		for ; len(raw) > 0; raw = raw[truthEntry:] {
			t.Offsets = append(t.Offsets, int64(binary.LittleEndian.Uint64(raw)))
			t.Checks = append(t.Checks, binary.LittleEndian.Uint64(raw[8:]))
			t.Labels = append(t.Labels, raw[16])
		}
		t.byName[f.Name] = f
	}
	if len(t.Offsets) != t.Records {
		return nil, fmt.Errorf("%s says that there are %d records, and its files have %d", manifestName, t.Records, len(t.Offsets))
	}
	if t.Topic != nil {
		return t, t.readLines(dir)
	}
	return t, nil
}

// Numbers gives the number of the record at an offset. It belongs to one file of the log, named without
// folders, or to one partition of the topic.
type Numbers func(offset int64) (number int, ok bool)

// Segment gives the Numbers of a file or partition by its name.
func (t *Truth) Segment(name string) (Numbers, bool) {
	if t.Topic != nil {
		return t.partition(name)
	}
	f, ok := t.byName[filepath.Base(name)]
	return func(offset int64) (int, bool) {
		i, ok := slices.BinarySearch(t.Offsets[f.First:f.First+f.Records], offset)
		return f.First + i, ok
	}, ok
}

func (t *Truth) partition(name string) (Numbers, bool) {
	heads := t.Topic.Heads(t.Records)
	for p, head := range heads {
		// Readers add a segment to the name of a partition that has several.
		if of := t.Topic.Partition(p); name == of || strings.HasPrefix(name, of+" ") {
			return func(offset int64) (int, bool) {
				return t.Topic.Number(p, offset), offset >= 0 && offset < head
			}, true
		}
	}
	return nil, false
}
