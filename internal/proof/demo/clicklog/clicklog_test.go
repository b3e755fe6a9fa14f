package clicklog

import (
	"bytes"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
)

func write(t *testing.T, records int, seed uint64) (string, *Truth) {
	t.Helper()
	dir := t.TempDir()
	o := Options{LogDir: filepath.Join(dir, "log"), TruthDir: filepath.Join(dir, "truth"), Records: records, Seed: seed}
	if _, err := Write(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	truth, err := ReadTruth(o.TruthDir)
	if err != nil {
		t.Fatal(err)
	}
	return o.LogDir, truth
}

func TestEveryRecordIsWhereTheTruthSaysWithTheValuesItSays(t *testing.T) {
	const records = 20_011
	log, truth := write(t, records, 7)
	seen := 0
	for _, f := range truth.Files {
		text, err := os.ReadFile(filepath.Join(log, f.Name))
		if err != nil {
			t.Fatal(err)
		}
		offset := int64(0)
		numbers, _ := truth.Segment("somewhere/" + f.Name)
		for line := range bytes.Lines(text) {
			n, ok := numbers(offset)
			if !ok || n != seen {
				t.Fatalf("%s offset %d: record %d, %v, want %d", f.Name, offset, n, ok, seen)
			}
			check, label := recompute(t, strings.TrimSuffix(string(line), "\n"))
			if check != truth.Checks[n] || label != truth.Labels[n] {
				t.Fatalf("record %d: checksum %x label %d, truth says %x and %d", n, check, label, truth.Checks[n], truth.Labels[n])
			}
			offset += int64(len(line))
			seen++
		}
	}
	if seen != records {
		t.Fatalf("%d records in the files, want %d", seen, records)
	}
}

// recompute parses a line in the simplest way.
func recompute(t *testing.T, line string) (check uint64, label byte) {
	fields := strings.Split(line, "\t")
	if len(fields) != 1+Ints+Categories {
		t.Fatalf("%d fields: %q", len(fields), line)
	}
	label = fields[0][0] - '0'
	check = uint64(label) * Key(0)
	for j, text := range fields[1 : 1+Ints] {
		value := int64(Missing)
		if text != "" {
			v, err := strconv.ParseInt(text, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			value = v
		}
		check += uint64(value) * Key(1+j)
	}
	for c, text := range fields[1+Ints:] {
		if len(text) != 8 {
			t.Fatalf("category %q", text)
		}
		check += xxhash.Sum64String(Salt+"\x1f"+text) % Buckets * Key(1+Ints+c)
	}
	return check, label
}

func TestTheSameSeedGivesTheSameBytesAndAnotherSeedDoesNot(t *testing.T) {
	read := func(dir string) []byte {
		text, err := os.ReadFile(filepath.Join(dir, "day_5.tsv"))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first, _ := write(t, 2000, 1)
	again, _ := write(t, 2000, 1)
	other, _ := write(t, 2000, 2)
	if !bytes.Equal(read(first), read(again)) {
		t.Error("seed 1 gave two different logs")
	}
	if bytes.Equal(read(first), read(other)) {
		t.Error("seeds 1 and 2 gave the same log")
	}
}

func TestAboutAQuarterOfTheLabelsAreClicks(t *testing.T) {
	_, truth := write(t, 40_000, 3)
	for half, labels := range [][]byte{truth.Labels[:truth.Drift], truth.Labels[truth.Drift:]} {
		rate := float64(bytes.Count(labels, []byte{1})) / float64(len(labels))
		if rate < 0.1 || rate > 0.45 {
			t.Errorf("half %d of the log: %.3f of the labels are clicks, want about a quarter", half, rate)
		}
	}
}

func BenchmarkRow(b *testing.B) {
	w := newWorld(1)
	blk := newBlock()
	for b.Loop() {
		blk.fill(w, 1, 1000, 0)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/row")
}

func TestEveryRecordHasItsPlaceInTheTopicAndItsBytes(t *testing.T) {
	for _, records := range []int{8, 1000, 1001, 1279, 5000} {
		log, truth := write(t, records, 7)
		m := truth.Manifest
		topic := Topic{Name: "clicks", Partitions: 3, Stripe: 64}
		dir := filepath.Join(filepath.Dir(log), "truth")
		if err := m.SetTopic(log, dir, topic); err != nil {
			t.Fatal(err)
		}
		truth, err := ReadTruth(dir)
		if err != nil {
			t.Fatal(err)
		}
		seen := make([]int, records)
		for p, head := range truth.Topic.Heads(records) {
			numbers, ok := truth.Segment(topic.Partition(p))
			if !ok {
				t.Fatalf("Segment does not know partition %d of the topic", p)
			}
			for offset := range head {
				n, ok := numbers(offset)
				if !ok || n < 0 || n >= records {
					t.Fatalf("offset %d of partition %d is record %d, %v", offset, p, n, ok)
				}
				seen[n]++
			}
			if _, ok := numbers(head); ok {
				t.Errorf("partition %d holds a record at its head %d", p, head)
			}
		}
		if i := slices.IndexFunc(seen, func(n int) bool { return n != 1 }); i >= 0 {
			t.Errorf("%d records: record %d has %d places", records, i, seen[i])
		}
		if _, ok := truth.Segment("views/0"); ok {
			t.Error("Segment knows a partition of another topic")
		}
		lines := m.OpenLines(log)
		for n := range records {
			line, err := lines.Next()
			if err != nil || crc32.ChecksumIEEE(line) != truth.Lines[n] {
				t.Fatalf("record %d is %q, %v", n, line, err)
			}
			if check, _ := recompute(t, string(line)); check != truth.Checks[n] {
				t.Fatalf("line %d is not record %d", n, n)
			}
		}
		if _, err := lines.Next(); err != io.EOF {
			t.Errorf("Next after the last line: %v, want io.EOF", err)
		}
	}
}
