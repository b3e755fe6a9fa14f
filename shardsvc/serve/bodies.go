package serve

import (
	"fmt"
	"slices"
	"sync"

	"github.com/headrace/headrace/shardsvc/cut"
)

// keptBodies is the number of cuts whose JSON is kept. All ranks of a group ask for the
// same cut at about the same time.
const keptBodies = 2

// bodies makes the JSON of cuts, once for each.
type bodies struct {
	mu   sync.Mutex
	made []*body // the newest last
}

type body struct {
	id   uint64
	once sync.Once
	text []byte
	err  error
}

func (b *bodies) of(c *cut.Cut) ([]byte, error) {
	one := b.find(uint64(c.ID))
	one.once.Do(func() { // others that ask for the same wait here
		one.text, one.err = c.EncodeJSON()
		if one.err != nil {
			one.err = fmt.Errorf("cut %v: %w", c.ID, one.err)
		}
	})
	return one.text, one.err
}

func (b *bodies) find(id uint64) *body {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, one := range b.made {
		if one.id == id {
			return one
		}
	}
	one := &body{id: id}
	if len(b.made) == keptBodies {
		b.made = append(b.made[:0], b.made[1:]...)
	}
	b.made = append(b.made, one)
	return one
}

// forget drops a cut that the core does not keep any more. Its id may be drawn again.
func (b *bodies) forget(id uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made = slices.DeleteFunc(b.made, func(one *body) bool { return one.id == id })
}
