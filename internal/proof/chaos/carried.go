package chaos

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/headrace/headrace/shardsvc/cut"
)

// This file judges the checkpoints of trainers that keep the cut in a file of their own
// (Stream.state_dict). Each rank has a folder. Its files are numbered and never removed.

func (c *crew) carried() string { return filepath.Join(c.dir, "carried") }

// checkCarried compares each of these files with the cut that it carries.
func (c *crew) checkCarried(found map[cut.ID]kept, v *Verdict, s *Saves) error {
	files, err := filepath.Glob(filepath.Join(c.carried(), "rank-*", "*.model"))
	if err != nil {
		return err
	}
	for _, path := range files {
		name := "carried " + filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path))
		body, err := carriedIn(path)
		if err != nil {
			v.say("%s: %v", name, err)
			continue
		}
		s.CheckpointsChecked++
		s.Carried++
		if models, dropped := checkFiles(name, []string{path}, body, c.inputs, v, s); len(models) > 0 {
			found[body.ID] = kept{models, body, dropped}
		}
	}
	return nil
}

// carriedIn reads the cut from the metadata of a safetensors file that a trainer wrote.
func carriedIn(path string) (*cut.Cut, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if len(text) < 8 || binary.LittleEndian.Uint64(text) > uint64(len(text)-8) {
		return nil, fmt.Errorf("%s: it is not a safetensors file", path)
	}
	var head struct {
		Metadata struct{ Text string } `json:"__metadata__"`
	}
	if err := json.Unmarshal(text[8:8+binary.LittleEndian.Uint64(text)], &head); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	body, err := cut.ParseJSON([]byte(head.Metadata.Text))
	if err != nil {
		return nil, fmt.Errorf("%s: the cut in it: %w", path, err)
	}
	return body, nil
}
