package feed

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// frameOf makes a frame that has a row of each segment, of partition 7.
func frameOf(segments ...int64) *work {
	w := &work{}
	for _, segment := range segments {
		g := &pb.Grant{Partition: 7, Identity: "landing:clicks", Pieces: []*pb.Piece{{Segment: segment, Name: fmt.Sprint("chunk ", segment)}}}
		w.runs = append(w.runs, run{l: &lease{grant: g}, rows: 1})
	}
	return w
}

// client learns names as a trainer does that forgets them if it may.
type client struct{ partitions, segments map[string]string }

func (c *client) learn(t *testing.T, text []byte) (told int, anew bool) {
	t.Helper()
	if text == nil {
		return 0, false
	}
	var block namesBlock
	if err := json.Unmarshal(text, &block); err != nil {
		t.Fatal(err)
	}
	if block.Anew {
		c.partitions, c.segments = map[string]string{}, map[string]string{}
	}
	maps.Copy(c.partitions, block.Partitions)
	maps.Copy(c.segments, block.Segments)
	return len(block.Segments), block.Anew
}

func (c *client) knows(w *work) bool {
	for i := range w.runs {
		p := w.runs[i].l.grant.Pieces[0]
		if c.segments[fmt.Sprint("7/", p.Segment)] != p.Name {
			return false
		}
	}
	return c.partitions["7"] == "landing:clicks"
}

func TestNamesOfSegmentsThatAreOverAreForgotten(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	n, c := newNames(), &client{map[string]string{}, map[string]string{}}
	next, anews := int64(0), 0
	const frames = 40_000
	for i := range frames {
		segments := []int64{next}
		for range rng.IntN(3) {
			segments = append(segments, max(0, next-rng.Int64N(100))) // of leases that were read before too
		}
		next += rng.Int64N(3)
		w := frameOf(segments...)
		if _, anew := c.learn(t, n.of(w)); anew {
			anews++
		}
		if !c.knows(w) {
			t.Fatalf("frame %d: the client does not know the names of %v", i, segments)
		}
		if told := len(n.partitions) + len(n.segments); told > namesMost+3 || told != len(c.partitions)+len(c.segments) {
			t.Fatalf("frame %d: the agent remembers %d names, and the client %d", i, told, len(c.partitions)+len(c.segments))
		}
	}
	if want := int(next / namesMost); anews > want+1 || anews < want/2 {
		t.Errorf("%d segments were told anew %d times", next, anews)
	}
}

// Names that are all in use are not told with each frame.
func TestAFrameWithKnownNamesTellsNone(t *testing.T) {
	n, c := newNames(), &client{map[string]string{}, map[string]string{}}
	var all []int64
	for segment := range int64(2 * namesMost) {
		all = append(all, segment)
	}
	if told, anew := c.learn(t, n.of(frameOf(all...))); told != len(all) || anew {
		t.Errorf("the first frame tells %d names, anew: %v", told, anew)
	}
	for range 3 {
		if text := n.of(frameOf(all...)); text != nil {
			t.Fatalf("known names are told again: %.100s", text)
		}
	}
	w := frameOf(3, 5, 2*namesMost)
	if told, anew := c.learn(t, n.of(w)); told != 3 || !anew || !c.knows(w) || len(c.segments) != 3 {
		t.Errorf("a new name among old ones: %d are told, anew: %v, and the client knows %d", told, anew, len(c.segments))
	}
}
