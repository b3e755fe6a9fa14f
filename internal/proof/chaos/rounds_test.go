package chaos

import (
	"strings"
	"testing"
	"time"
)

// ranksOf is a group in which each rank has yielded so many rounds, one per second. Rank 0 was killed
// at second `died`; 0: all ended well.
func ranksOf(died int64, rounds ...int) (lives []*life) {
	second := int64(time.Second)
	for rank, n := range rounds {
		l := &life{rank: rank, no: 1, done: died == 0, joined: true, ended: 10000 * second, status: "exit status 0"}
		if died != 0 {
			l.status = "signal: killed"
			if rank == 0 {
				l.ended = died * second
			}
		}
		for i := range n {
			l.batches = append(l.batches, &batch{stream: 1, number: i + 1, yielded: int64(i+1) * second})
		}
		lives = append(lives, l)
	}
	return lives
}

func TestARoundThatOneRankNeverGetsIsSeen(t *testing.T) {
	for _, c := range []struct {
		name  string
		lives []*life
		wrong string // part of the first fault; "": no fault
	}{
		{"all ranks have all rounds", ranksOf(0, 3, 3, 3), ""},
		{"all end well, and one rank has a round less", ranksOf(0, 3, 2, 3), "ended well, only 2"},
		{"a death between two ranks' yields", ranksOf(4, 2, 3, 2), ""},
		{"two rounds ahead of another rank", ranksOf(5, 3, 1, 3), "only 1"},
		{"a round that a rank did not get for long, although all ran", ranksOf(100, 3, 2, 3), "when the first of the group ended"},
	} {
		var v Verdict
		v.judgeRounds(c.lives, nil)
		switch {
		case c.wrong == "" && len(v.Wrong) > 0:
			t.Errorf("%s: %v", c.name, v.Wrong)
		case c.wrong != "" && (len(v.Wrong) == 0 || !strings.Contains(v.Wrong[0], c.wrong)):
			t.Errorf("%s: %v, want %q", c.name, v.Wrong, c.wrong)
		}
	}
	var v Verdict
	lives := ranksOf(100, 3, 2, 3)
	v.judgeRounds(lives, []disturbance{{from: int64(2 * time.Second), to: int64(5 * time.Second), agent: -1}})
	lives[1].frozen = true
	v.judgeRounds(lives, nil)
	absent := ranksOf(4, 1, 0)
	if len(v.Wrong) > 0 {
		t.Errorf("rank 1 misses a round while the master is away or a rank is frozen: want no fault, got %v", v.Wrong)
	}
	absent[1].joined = false
	if v.judgeRounds(absent, nil); len(v.Wrong) != 1 || !strings.Contains(v.Wrong[0], "was never there") {
		t.Errorf("rank 1 never joined: want \"was never there\", got %v", v.Wrong)
	}
}
