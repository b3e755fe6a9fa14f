package chaos

import (
	"testing"
)

// topic6 is a topic with two partitions of three records each.
func topic6() []*input {
	in := &input{name: "small", records: 6, passes: 1, partitions: 2}
	for id := range 6 {
		in.putIn(id/3, []string{"0", "1"}[id/3], int64(id%3), id)
	}
	return []*input{in}
}

func has(ids ...int) map[key]bool {
	in := map[key]bool{}
	for _, id := range ids {
		in[key(id)] = true
	}
	return in
}

func TestAnOffsetAboveWhatOneReplicatedCheckpointHasIsEarly(t *testing.T) {
	e := newEarly(topic6(), false)
	e.has(has(0, 2, 3))
	e.has(has(0, 1))
	if wrong := e.judge(0, []int64{2, 1}); len(wrong) != 0 {
		t.Error(wrong)
	}
	if wrong := e.judge(0, []int64{3, 1}); len(wrong) != 1 {
		t.Errorf("the checkpoints have the records below 3 together, but none has all: got %q", wrong)
	}
}

func TestOffsetsOfAPrivateModelAreInTheCheckpointsOfAllRanksTogether(t *testing.T) {
	e := newEarly(topic6(), true)
	e.has(has(0, 2, 3))
	if wrong := e.judge(0, []int64{1, 1}); len(wrong) != 0 {
		t.Error(wrong)
	}
	if wrong := e.judge(0, []int64{-1, 2}); len(wrong) != 1 {
		t.Errorf("record 4 is in no checkpoint: got %q", wrong)
	}
	e.has(has(1))
	if wrong := e.judge(0, []int64{3, 1}); len(wrong) != 0 {
		t.Error(wrong)
	}
}
