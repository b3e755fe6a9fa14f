package chaos

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
)

// model is what trainer/sums.py trains: for each dataset the sum of its records' hashes and their
// number, and for each record how often it was seen.
type model struct {
	sums []uint64 // sum, count; sum, count; ...
	seen []uint8  // by dataset, pass and record
}

// recordHash is the hash of a record. trainer/sums.py computes the same from what it was given.
func recordHash(k key, payload int64) uint64 {
	z := uint64(k) * 0x9E3779B97F4A7C15
	z = (z ^ z>>29) * 0xBF58476D1CE4E5B9
	z ^= uint64(payload) * 0x94D049BB133111EB
	return (z ^ z>>32) * 0x9E3779B97F4A7C15
}

// trained is the model of a set of records, computed by the generator alone.
func trained(inputs []*input, in map[key]bool) model {
	m := model{sums: make([]uint64, 2*len(inputs))}
	each(inputs, func(k key) {
		if !in[k] {
			m.seen = append(m.seen, 0)
			return
		}
		m.seen = append(m.seen, 1)
		m.sums[2*k.dataset()] += recordHash(k, check(uint64(k.id())))
		m.sums[2*k.dataset()+1]++
	})
	return m
}

// weighed is the model that has seen each record as often as seen says.
func weighed(inputs []*input, seen []uint8) model {
	m, i := model{sums: make([]uint64, 2*len(inputs)), seen: seen}, 0
	each(inputs, func(k key) {
		m.sums[2*k.dataset()] += uint64(seen[i]) * recordHash(k, check(uint64(k.id())))
		m.sums[2*k.dataset()+1] += uint64(seen[i])
		i++
	})
	return m
}

// everything is the set of all records of all passes.
func everything(inputs []*input) map[key]bool {
	all := map[key]bool{}
	each(inputs, func(k key) { all[k] = true })
	return all
}

// readModel reads the two arrays of a safetensors file.
func readModel(path string) (m model, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return m, err
	}
	bad := fmt.Errorf("%s: it is not the model's safetensors file", path)
	if len(text) < 8 || binary.LittleEndian.Uint64(text) > uint64(len(text)-8) {
		return m, bad
	}
	n := int(binary.LittleEndian.Uint64(text))
	head, body := text[8:8+n], text[8+n:]
	var all struct {
		Sums, Seen struct {
			Dtype   string `json:"dtype"`
			Offsets [2]int `json:"data_offsets"`
		}
	}
	if err := json.Unmarshal(head, &all); err != nil {
		return m, errors.Join(bad, err)
	}
	a, b := all.Sums.Offsets, all.Seen.Offsets
	if all.Sums.Dtype != "U64" || all.Seen.Dtype != "U8" || a[0] < 0 || b[0] < 0 || a[0] > a[1] || b[0] > b[1] || a[1] > len(body) || b[1] > len(body) || (a[1]-a[0])%8 != 0 {
		return m, bad
	}
	for sums := body[a[0]:a[1]]; len(sums) > 0; sums = sums[8:] {
		m.sums = append(m.sums, binary.LittleEndian.Uint64(sums))
	}
	m.seen = body[b[0]:b[1]]
	return m, nil
}

// add adds what another model saw.
func (m *model) add(o model) {
	if m.sums == nil {
		m.sums, m.seen = make([]uint64, len(o.sums)), make([]uint8, len(o.seen))
	}
	for i := range o.sums {
		m.sums[i] += o.sums[i]
	}
	for i := range o.seen {
		m.seen[i] += o.seen[i]
	}
}
