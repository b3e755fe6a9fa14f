package cut

import (
	"fmt"
	"testing"

	"github.com/headrace/headrace/sources"
)

// large is a cut of 10,000 partitions with three ranges each above the low mark.
func large() *Cut {
	d := Dataset{Name: "clicks", Unit: "bytes"}
	for i := range 10_000 {
		d.Partitions = append(d.Partitions, Partition{
			Identity: fmt.Sprintf("kafka:MkU3OEVBNTcwNTJENDM2Qk/AAAAAAAAAAAAAAAAAAAAAQ/%d", i), Name: fmt.Sprintf("clicks/%d", i), Number: uint32(i + 1),
			Segments: []sources.Segment{{ID: 0, End: 1 << 40, Name: fmt.Sprintf("clicks/%d", i), Locator: []byte("opens it on any node")}},
			Passes: []Pass{{Low: Place{0, 1_000_000}, Units: Units{Acked: 1_000_600}, Records: &Tally{Rows: 9000, Oldest: 1764000000000, Newest: 1764000009000},
				Ranges: Ranges{{Place{0, 1_000_200}, Place{0, 1_000_400}, Acked}, {Place{0, 1_000_600}, Place{0, 1_000_800}, Acked}, {Place{0, 1_001_000}, Place{0, 1_001_200}, Acked}}}},
		})
	}
	return &Cut{Version: Version, ID: 7, Job: "job", Model: "replicated", Rank: Group, WorldSize: 4, Step: 40, Exact: true, Datasets: []Dataset{d}}
}

// bare returns a cut as the core stores it: without names and segments.
func bare(c *Cut) *Cut {
	b := *c
	b.Datasets = []Dataset{c.Datasets[0]}
	b.Datasets[0].Partitions = nil
	for _, p := range c.Datasets[0].Partitions {
		p.Name, p.Segments = "", nil
		b.Datasets[0].Partitions = append(b.Datasets[0].Partitions, p)
	}
	return &b
}

func BenchmarkAppend(b *testing.B) {
	c := bare(large())
	for b.Loop() {
		_ = c.Append(nil)
	}
}

func BenchmarkDecode(b *testing.B) {
	text := bare(large()).Append(nil)
	for b.Loop() {
		if _, err := Decode(text); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkEncodeJSON(b *testing.B) {
	c := large()
	for b.Loop() {
		if _, err := c.EncodeJSON(); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkParseJSON(b *testing.B) {
	text, err := large().EncodeJSON()
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := ParseJSON(text); err != nil {
			b.Fatal(err)
		}
	}
}
