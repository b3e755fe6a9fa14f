package chaos

import "testing"

func TestAnExactCheckpointHoldsItsCutAndWhatKilledTrainersHadInHand(t *testing.T) {
	at := saved{server: 1, captured: 100}
	in := map[key]bool{0: true, 1: true}
	seen := []uint8{1, 1, 1, 1, 0, 0}
	applied := two(1, 2, 50)
	applied.server = 1
	durable := two(1, 2, 50)
	durable.server, durable.durableWhenLastStepped = 1, true
	late := two(1, 2, 120)
	late.server = 1
	for _, x := range []struct {
		name  string
		lives []*life
		from  span
		twice int
	}{
		{"a killed trainer had the records in hand", []*life{killed(1, 90, applied)}, span{}, 0},
		{"no trainer had the records", nil, span{}, 2},
		{"a trainer that still runs had the records", []*life{killed(1, 0, applied)}, span{}, 2},
		{"their step was durable", []*life{killed(1, 90, durable)}, span{}, 2},
		{"they were applied after the model was copied", []*life{killed(1, 90, late)}, span{}, 2},
		{"the checkpoint with which the model began had them beyond its cut", nil, span{base: []uint8{0, 0, 1, 1, 0, 0}, cut: map[key]bool{}}, 0},
		{"that checkpoint had them in its cut", nil, span{base: []uint8{0, 0, 1, 1, 0, 0}, cut: map[key]bool{2: true, 3: true}}, 2},
	} {
		var v Verdict
		if more := v.judgeExactModel(weighed(small(false), seen), in, small(false), x.from, inHand(x.lives, at)); v.Twice != x.twice || more != 2 {
			t.Errorf("%s: %d more, %+v", x.name, more, v)
		}
	}
}
