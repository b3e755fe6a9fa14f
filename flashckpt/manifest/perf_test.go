package manifest

import "testing"

func BenchmarkParse(b *testing.B) {
	c := cutOf("replicated", files())
	p := &c.Datasets[0].Partitions[0]
	p.Segments[1].End = 1 << 40
	for i := range int64(100_000) {
		p.Passes[0].Ranges = append(p.Passes[0].Ranges, acked(1, 2000+i*1000, 2500+i*1000))
	}
	text, err := of(c).Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := Parse(text); err != nil {
			b.Fatal(err)
		}
	}
}
