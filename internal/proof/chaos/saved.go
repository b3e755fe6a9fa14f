package chaos

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/headrace/headrace/flashckpt/audit"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/shardsvc/cut"
)

// Saves is what a run found about its checkpoints.
type Saves struct {
	CheckpointsChecked int `json:"checkpoints_checked"`
	Restores           int `json:"restores"`
	Damaged            int `json:"damaged"`                   // checkpoints that we have damaged
	FailedSaves        int `json:"failed_saves"`              // saves that failed; the trainer was told and went on
	Pins               int `json:"pins"`                      // checkpoints that were pinned
	Rewinds            int `json:"rewinds"`                   // how often a person went back to a checkpoint
	EmptyMasters       int `json:"empty_masters"`             // masters that lost their state; the job went on from manifests
	Servers            int `json:"servers_killed"`            // killed servers of a shared model, which was then restored
	Carried            int `json:"carried"`                   // of the checked ones: files of a trainer's own that carry a cut
	CommitsChecked     int `json:"commits_checked,omitempty"` // offsets that were read from the broker and checked
	Inexact            int `json:"inexact"`                   // shared: checkpoints with exact: false
	Ahead              int `json:"ahead"`                     // records that those hold beyond their cut
	Exact              int `json:"exact"`                     // shared: checkpoints with exact: true
	InHand             int `json:"in_hand"`                   // records that those hold beyond their cut, because killed trainers had them in hand
	WithDrops          int `json:"with_drops"`                // checkpoints that list dropped records
}

func (s *Saves) add(o Saves) {
	s.CheckpointsChecked += o.CheckpointsChecked
	s.Restores += o.Restores
	s.Damaged += o.Damaged
	s.FailedSaves += o.FailedSaves
	s.Carried += o.Carried
	s.Pins += o.Pins
	s.Rewinds += o.Rewinds
	s.EmptyMasters += o.EmptyMasters
	s.Servers += o.Servers
	s.CommitsChecked += o.CommitsChecked
	s.Inexact += o.Inexact
	s.Ahead += o.Ahead
	s.Exact += o.Exact
	s.InHand += o.InHand
	s.WithDrops += o.WithDrops
}

func (c *crew) checkpoints() string { return filepath.Join(c.dir, "checkpoints") }
func (c *crew) archive() string     { return filepath.Join(c.dir, "archive") }

// collect links every complete checkpoint into the archive, where retention does not find it.
func (c *crew) collect() error {
	c.collects.Lock()
	defer c.collects.Unlock()
	folders, err := os.ReadDir(c.checkpoints())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, f := range folders {
		if name, ok := strings.CutSuffix(f.Name(), "."+manifest.FileName); ok && !strings.HasPrefix(name, ".") {
			if err := c.collectFile(name); err != nil {
				return err
			}
		}
		from, to := filepath.Join(c.checkpoints(), f.Name()), filepath.Join(c.archive(), f.Name())
		if _, err := os.Stat(filepath.Join(to, manifest.FileName)); err == nil || !f.IsDir() {
			continue
		}
		if _, err := os.Stat(filepath.Join(from, manifest.FileName)); err != nil {
			continue
		}
		if err := hardLink(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) { // retention removed it first
			return err
		}
	}
	return nil
}

// collectFile does the same for a file that a trainer wrote itself and the manifest beside it. In the
// archive they have a folder.
func (c *crew) collectFile(name string) error {
	from, to := filepath.Join(c.checkpoints(), name), filepath.Join(c.archive(), name)
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	err := os.Link(from, filepath.Join(to, name))
	if err == nil || errors.Is(err, fs.ErrExist) {
		err = os.Link(from+"."+manifest.FileName, filepath.Join(to, manifest.FileName))
	}
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

// archivedAs is the name of a checkpoint's folder in the archive.
func archivedAs(one manifest.Checkpoint) string {
	if name, ok := strings.CutSuffix(filepath.Base(one.Path), "."+manifest.FileName); ok {
		return name
	}
	return filepath.Base(one.Folder())
}

// cutShort removes the last byte of a file of the newest checkpoint of a rank (-1: of the group). The
// archive keeps the whole file. It gives the file's path, or "" if there is nothing to damage.
func (c *crew) cutShort(rank int) (string, error) {
	if err := c.collect(); err != nil {
		return "", err
	}
	c.collects.Lock() // a checkpoint that is not in the archive now is linked only when cutShort is done, or never
	defer c.collects.Unlock()
	all, err := manifest.Find(manifest.OS{}, c.checkpoints())
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	all = slices.DeleteFunc(all, func(one manifest.Checkpoint) bool {
		m := one.Manifest
		return m == nil || len(m.Files) == 0 || c.damaged[m.Cut.ID] || rank >= 0 && (m.Rank == nil || int(*m.Rank) != rank)
	})
	if len(all) > 1 { // without any whole checkpoint nothing could be restored, rightly
		one, m := all[0], all[0].Manifest
		if _, err := os.Stat(filepath.Join(c.archive(), archivedAs(one), manifest.FileName)); err != nil {
			return "", nil // it is too new to be in the archive
		}
		path := filepath.Join(one.Folder(), filepath.FromSlash(m.Files[0].Path))
		text, err := os.ReadFile(path)
		if err == nil {
			err = os.WriteFile(path+".short", text[:len(text)-1], 0o600)
		}
		if err == nil {
			c.damaged[m.Cut.ID] = true
			err = os.Rename(path+".short", path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return "", nil // retention removed it first
		}
		return path, err
	}
	return "", nil
}

func hardLink(from, to string) error {
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	files, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	slices.SortStableFunc(files, func(a, b os.DirEntry) int { // as in a save, the manifest comes last
		return strings.Compare(strconv.FormatBool(a.Name() == manifest.FileName), strconv.FormatBool(b.Name() == manifest.FileName))
	})
	for _, f := range files {
		err := os.Link(filepath.Join(from, f.Name()), filepath.Join(to, f.Name()))
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// members gives the records that a cut names, and those that it lists as dropped. The generator knows
// where each record begins.
func members(body *cut.Cut, inputs []*input) (in, dropped map[key]bool, err error) {
	in, dropped = map[key]bool{}, map[key]bool{}
	for i := range body.Datasets {
		d := &body.Datasets[i]
		n := slices.IndexFunc(inputs, func(in *input) bool { return in.name == d.Name })
		if n < 0 {
			return nil, nil, fmt.Errorf("the cut names dataset %s, which the job does not have", d.Name)
		}
		for j := range d.Partitions {
			p := &d.Partitions[j]
			for pass := range audit.Passes(d, p) {
				if pass.Vague != 0 || len(pass.Excluded) != 0 || len(pass.Dropped) > 0 && !inputs[n].drops {
					return nil, nil, fmt.Errorf("%s: pass %d has %d dropped units that it does not list, %v dropped and %v excluded, and this input gives no reason for any of them", p.Identity, pass.Pass, pass.Vague, pass.Dropped, pass.Excluded)
				}
				put := func(to map[key]bool, all []audit.Range) error {
					for _, r := range all {
						if err := inputs[n].within(p, r, func(id int) { to[key(id)|key(pass.Pass)<<40|key(n)<<56] = true }); err != nil {
							return err
						}
					}
					return nil
				}
				err := put(in, pass.Ranges)
				for _, x := range pass.Dropped {
					err = errors.Join(err, put(dropped, x.Ranges))
				}
				if err != nil {
					return nil, nil, err
				}
			}
		}
	}
	for k := range dropped {
		if in[k] {
			return nil, nil, fmt.Errorf("%v is both trained on and dropped in the cut", k)
		}
	}
	return in, dropped, nil
}

func (in *input) within(p *cut.Partition, r audit.Range, f func(id int)) error {
	segment := filepath.Base(r.Name)
	if in.queue != nil {
		segment = in.queue.segment(in, p, r)
	}
	places := in.placesOf(segment)
	if len(places) == 0 {
		return fmt.Errorf("%s: the cut names %s [%d, %d), where no record is", p.Identity, r.Name, r.Start, r.End)
	}
	if r.Start < 0 {
		ids, err := in.earlier(places[0].id, r)
		if err != nil {
			return fmt.Errorf("%s: %w", p.Identity, err)
		}
		for _, id := range ids {
			f(id)
		}
	}
	first, _ := slices.BinarySearchFunc(places, r.Start, func(x place, at int64) int { return int(x.at - at) })
	for _, x := range places[first:] {
		if x.at >= r.End {
			break
		}
		f(x.id)
	}
	return nil
}

// earlier gives the records of a range that come before its segment, whose first record is `first`. A
// cut names several deleted chunks of a landing as one segment, with the name of the last chunk.
// Negative offsets count records back from the beginning of that chunk.
func (in *input) earlier(first int, r audit.Range) ([]int, error) {
	if _, ok := in.queue.(*landing); !ok {
		return nil, fmt.Errorf("the cut names %s [%d, %d), and only chunks of a landing may have a negative offset", r.Name, r.Start, r.End)
	}
	for p := range in.partitions {
		ids := in.rowsOf(p)
		i, there := slices.BinarySearch(ids, first)
		if !there {
			continue
		}
		if int64(i)+r.Start < 0 {
			return nil, fmt.Errorf("the cut names %s [%d, %d), and only %d records lie before that chunk", r.Name, r.Start, r.End, i)
		}
		return ids[int64(i)+r.Start : int64(i)+min(r.End, 0)], nil
	}
	return nil, fmt.Errorf("the cut names %s [%d, %d), and no partition has record %d, the first one of that chunk", r.Name, r.Start, r.End, first)
}

// kept is a checkpoint that was checked: its models, its cut, and the records that the cut lists as
// dropped.
type kept struct {
	models  []model
	cut     *cut.Cut
	dropped map[key]bool
}

// checkAll judges every checkpoint that was ever saved, and then what is in the models at the end: the
// checkpoints of each rank's last process.
func (c *crew) checkAll(ctx context.Context, lives []*life, v *Verdict) (s Saves, found map[cut.ID]kept, err error) {
	if err := c.collect(); err != nil {
		return s, nil, err
	}
	folders, err := os.ReadDir(c.archive())
	if err != nil {
		return s, nil, err
	}
	s.CommitsChecked = c.commits
	s.Servers = max(0, c.lifeOf-1)
	found = map[cut.ID]kept{}
	for _, f := range folders {
		folder := filepath.Join(c.archive(), f.Name())
		m, err := manifest.Load(manifest.OS{}, filepath.Join(folder, manifest.FileName))
		if errors.Is(err, fs.ErrNotExist) {
			continue // retention removed it first; a checkpoint that a trainer reported as saved is looked for below
		}
		if err != nil {
			v.say("checkpoint %s: %v", f.Name(), err)
			continue
		}
		s.CheckpointsChecked++
		if models, dropped := checkOne(ctx, f.Name(), folder, m, c.inputs, v, &s); len(models) > 0 {
			found[m.Cut.ID] = kept{models, &m.Cut, dropped}
		}
	}
	if err := errors.Join(c.checkCarried(found, v, &s), c.checkRestored(found, v, &s)); err != nil {
		return s, nil, err
	}
	last := map[int]*life{}
	for _, l := range lives {
		s.Restores += l.restores
		s.FailedSaves += l.failedSaves
		for _, one := range l.saved {
			if _, ok := found[one.cut]; !ok {
				v.say("%s says that it has saved cut %v, and no such checkpoint was found", l, one.cut)
			}
		}
		if last[l.rank] == nil || last[l.rank].no < l.no {
			last[l.rank] = l
		}
	}
	if c.o.Model != "shared" {
		c.checkEnd(last, found, v)
	} else {
		c.checkExact(lives, found, v, &s)
	}
	return s, found, nil
}

// checkEnd checks that the models of all ranks together hold everything once.
func (c *crew) checkEnd(last map[int]*life, found map[cut.ID]kept, v *Verdict) {
	sum, want := model{sums: make([]uint64, 2*len(c.inputs)), seen: make([]uint8, len(everything(c.inputs)))}, everything(c.inputs)
	for rank, l := range last {
		if !l.done {
			v.say("%v is the last process of its rank and has not ended well", l)
		}
		if c.o.Model == "replicated" && rank != 0 || l.model == 0 {
			continue
		}
		m, ok := found[l.model]
		if !ok {
			v.say("%v ended with cut %v, and no checkpoint has that cut", l, l.model)
			continue
		}
		sum.add(m.models[0])
		for k := range m.dropped {
			delete(want, k)
		}
	}
	if c.drops {
		v.judgeDropped(c.inputs, last, sum, want)
	}
	v.compare("the end", sum, want, c.inputs, nil)
}

// checkOne judges one checkpoint. It gives the models in it: one, or one for each rank of a sharded
// save.
func checkOne(ctx context.Context, name, folder string, m *manifest.Manifest, inputs []*input, v *Verdict, s *Saves) (models []model, dropped map[key]bool) {
	faults, err := manifest.Verify(ctx, folder, m, manifest.Verifying{Workers: 1})
	if err != nil || len(faults) > 0 {
		v.say("checkpoint %s is damaged: %v %v", name, faults, err)
		return nil, nil
	}
	var files []string
	for _, f := range m.Files {
		files = append(files, filepath.Join(folder, f.Path))
	}
	return checkFiles("checkpoint "+name, files, &m.Cut, inputs, v, s)
}

// checkFiles compares the models in files with a cut. It gives the models, and the records that the cut
// lists as dropped.
func checkFiles(what string, files []string, body *cut.Cut, inputs []*input, v *Verdict, s *Saves) (models []model, dropped map[key]bool) {
	in, dropped, err := members(body, inputs)
	if err != nil {
		v.say("%s: %v", what, err)
		return nil, nil
	}
	if len(dropped) > 0 {
		s.WithDrops++
	}
	var ahead *int
	switch {
	case body.Model != "shared":
	case body.Exact: // checkExact judges what it holds beyond its cut
		s.Exact++
		ahead = new(int)
	default:
		s.Inexact++
		ahead = &s.Ahead
	}
	for _, f := range files {
		one, err := readModel(f)
		if err != nil {
			v.say("%s: %v", what, err)
			continue
		}
		models = append(models, one)
		v.compare(what, one, in, inputs, ahead)
	}
	if len(models) == 0 {
		v.say("%s holds no model", what)
	}
	return models, dropped
}

// compare counts the records of a set that a model has lost or has too often. With ahead, the model may
// hold more than the set, and may hold records of killed trainers twice; *ahead counts these, and the
// journals of the whole run judge them.
func (v *Verdict) compare(what string, m model, in map[key]bool, inputs []*input, ahead *int) {
	want := trained(inputs, in)
	if len(m.sums) != len(want.sums) || len(m.seen) != len(want.seen) {
		v.say("%s: its model has %d and %d values, not %d and %d", what, len(m.sums), len(m.seen), len(want.sums), len(want.seen))
		return
	}
	lost, twice, i := 0, 0, -1
	var example [2]key
	each(inputs, func(k key) {
		i++
		switch have, should := m.seen[i], want.seen[i]; {
		case have < should:
			lost++
			example[0] = k
		case have > should && ahead != nil:
			*ahead += int(have - should)
		case have > should:
			twice++
			example[1] = k
		}
	})
	v.Lost += lost
	v.Twice += twice
	if lost > 0 {
		v.say("%s lacks %d records of its cut, the last one is %v", what, lost, example[0])
	}
	if twice > 0 {
		v.say("%s has %d records too often, or without its cut naming them, the last one is %v", what, twice, example[1])
	}
	if ahead != nil {
		want = weighed(inputs, m.seen)
	}
	if lost == 0 && twice == 0 && !slices.Equal(m.sums, want.sums) {
		v.Lost++
		v.say("%s: its sums are %x, and by the generator %x: a record came with the payload of another", what, m.sums, want.sums)
	}
}
