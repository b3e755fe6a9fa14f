package report

import (
	"math"
	"slices"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
)

// Window is the model's progressive quality over a range of records: each record was predicted before the
// model learned it.
type Window struct {
	To      int     `json:"to"` // number of the first record after the window
	Rows    int     `json:"rows"`
	AUC     float64 `json:"auc"`
	LogLoss float64 `json:"log_loss"`
}

// predictions gives the first prediction for each record; NaN: there is none.
func predictions(records int, journals []*Journal) []float32 {
	var all []Batch
	for _, j := range journals {
		for _, b := range j.Batches {
			if b.Applied != 0 {
				all = append(all, b)
			}
		}
	}
	slices.SortFunc(all, func(a, b Batch) int { return int(a.Applied - b.Applied) })
	p := make([]float32, records)
	for i := range p {
		p[i] = float32(math.NaN())
	}
	for _, b := range all {
		for i, n := range b.Records {
			if n >= 0 && p[n] != p[n] {
				p[n] = b.Predictions[i]
			}
		}
	}
	return p
}

// measure computes the quality over records [from, to).
func measure(truth *clicklog.Truth, p []float32, from, to int) Window {
	w := Window{To: to}
	keys := make([]uint64, 0, to-from)
	for n := from; n < to; n++ {
		if p[n] != p[n] {
			continue
		}
		label := uint64(truth.Labels[n])
		keys = append(keys, uint64(math.Float32bits(max(p[n], 0)))<<1|label)
		q := min(max(float64(p[n]), 1e-6), 1-1e-6)
		if label == 0 {
			q = 1 - q
		}
		w.LogLoss -= math.Log(q)
	}
	w.Rows = len(keys)
	if w.Rows > 0 {
		w.LogLoss /= float64(w.Rows)
	}
	w.AUC = auc(keys)
	return w
}

// auc is the share of (click, no click) pairs that are ranked right; ties count half. A key has the bits of
// a prediction, which sort as it does because it is >= 0, and the label. Without one of the labels, auc
// is 0.5. It sorts keys.
func auc(keys []uint64) float64 {
	slices.Sort(keys)
	var right, clicks, others float64
	for i := 0; i < len(keys); {
		c, o := 0.0, 0.0
		for value := keys[i] >> 1; i < len(keys) && keys[i]>>1 == value; i++ {
			if keys[i]&1 == 1 {
				c++
			} else {
				o++
			}
		}
		right += c*others + c*o/2
		clicks += c
		others += o
	}
	if clicks == 0 || others == 0 {
		return 0.5
	}
	return right / (clicks * others)
}
