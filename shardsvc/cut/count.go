package cut

import (
	"errors"
	"fmt"
)

// maxLine bounds offsets, lengths and counts, so that the sum of a few never
// overflows.
const maxLine = 1 << 60

// Units counts units of the source (bytes or records) by kind.
type Units struct {
	Acked    int64 `json:"acked"`
	Excluded int64 `json:"excluded"`
	Dropped  int64 `json:"dropped"`
}

// Add adds v to u.
func (u *Units) Add(v Units) {
	u.Acked += v.Acked
	u.Excluded += v.Excluded
	u.Dropped += v.Dropped
}

// Tally counts the records in acked units. Only a reader knows how many records its
// units hold; it says so with its acks. Units whose records nobody counted are untold.
type Tally struct {
	Rows   int64 `json:"rows"`             // records that became rows; at least so many if Untold > 0
	Untold int64 `json:"untold,omitempty"` // units whose records nobody counted
	// Event times of the oldest and the newest record, ms since 1970. 0 and 0: no
	// record has one.
	Oldest int64 `json:"oldest,omitempty"`
	Newest int64 `json:"newest,omitempty"`
}

// Untold returns the tally of units whose records nobody counted.
func Untold(units int64) Tally { return Tally{Untold: units} }

// Add adds o to t.
func (t *Tally) Add(o Tally) {
	t.Rows = min(t.Rows+o.Rows, maxLine)
	t.Untold += o.Untold
	switch {
	case o.Oldest == 0 && o.Newest == 0:
	case t.Oldest == 0 && t.Newest == 0:
		t.Oldest, t.Newest = o.Oldest, o.Newest
	default:
		t.Oldest, t.Newest = min(t.Oldest, o.Oldest), max(t.Newest, o.Newest)
	}
}

// Without subtracts o, a part of t. The event times stay as they are: they are still
// bounds for the rest.
func (t *Tally) Without(o Tally) {
	t.Rows = max(t.Rows-o.Rows, 0)
	t.Untold = max(t.Untold-o.Untold, 0)
	if t.Rows == 0 {
		t.Oldest, t.Newest = 0, 0
	}
}

// Within lowers Untold to units: no more units can be untold than there are.
func (t Tally) Within(units int64) Tally {
	t.Untold = min(t.Untold, units)
	return t
}

// Check returns an error if t cannot be the tally of so many acked units.
func (t *Tally) Check(units int64) error {
	if _, err := t.wrong(units); err != nil {
		return err
	}
	return nil
}

// wrong is Check with the name of the JSON field that is wrong.
func (t *Tally) wrong(units int64) (field string, err error) {
	switch {
	case t.Rows < 0 || t.Rows > maxLine:
		return "rows", fmt.Errorf("%d rows, must be 0 to 2^60", t.Rows)
	case t.Untold < 0 || t.Untold > units:
		return "untold", fmt.Errorf("%d untold units of %d acked ones", t.Untold, units)
	case t.Oldest > t.Newest || (t.Oldest == 0) != (t.Newest == 0):
		return "oldest", fmt.Errorf("the oldest record is of %d and the newest of %d: no span of times", t.Oldest, t.Newest)
	case t.Rows == 0 && t.Newest != 0:
		return "newest", errors.New("there are event times, but no rows")
	}
	return "", nil
}

// Units counts all passes of all datasets.
func (c *Cut) Units() (u Units) {
	for i := range c.Datasets {
		u.Add(c.Datasets[i].Units())
	}
	return u
}

// Units counts all passes of a dataset.
func (d *Dataset) Units() (u Units) {
	for i := range d.Partitions {
		u.Add(d.Partitions[i].Units())
	}
	return u
}

// Units counts all passes of a partition.
func (p *Partition) Units() Units {
	u := p.DoneUnits
	for i := range p.Passes {
		u.Add(p.Passes[i].Units)
	}
	return u
}

// Records counts all passes of all datasets.
func (c *Cut) Records() (t Tally) {
	for i := range c.Datasets {
		t.Add(c.Datasets[i].Records())
	}
	return t
}

// Records counts all passes of a dataset.
func (d *Dataset) Records() (t Tally) {
	for i := range d.Partitions {
		t.Add(d.Partitions[i].Records())
	}
	return t
}

// Records counts all passes of a partition.
func (p *Partition) Records() Tally {
	t := p.DoneCounted()
	for i := range p.Passes {
		t.Add(p.Passes[i].Counted())
	}
	return t
}

// Counted returns the records of a pass. An older version did not count them: then all
// acked units are untold.
func (p *Pass) Counted() Tally {
	if p.Records == nil {
		return Untold(p.Units.Acked)
	}
	return *p.Records
}

// DoneCounted returns the records of passes [0, Done), like Counted.
func (p *Partition) DoneCounted() Tally {
	if p.DoneRecords == nil {
		return Untold(p.DoneUnits.Acked)
	}
	return *p.DoneRecords
}
