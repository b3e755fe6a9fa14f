package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/ckpt"
	"github.com/headrace/headrace/internal/ckpt/ckpttest"
)

// saved writes a checkpoint of clicks, settled up to low, in the folder ckpt. It returns the checkpoint's folder.
func (w *world) saved(step int64, epoch uint32, low int64, change func(*manifest.Manifest)) string {
	w.t.Helper()
	return ckpttest.Save(w.t, w.dir, step, epoch, low, change)
}

func same(m *manifest.Manifest) { ckpttest.Unchanged(m) }

// anywhere replaces the world's folder in a text by DIR, so that the text is the same on every machine.
func (w *world) anywhere(text string) string { return strings.ReplaceAll(text, w.dir, "DIR") }

func TestCheckpointsOfAFolderAreListedNewestFirst(t *testing.T) {
	w := newWorld(t)
	w.env = append(w.env, "TZ=UTC")
	w.saved(900, 1, 100, same)
	w.saved(100, 2, 200, same)
	pinned := w.saved(300, 2, 300, same)
	broken := w.saved(400, 2, 400, same)
	w.ok("ckpt", "pin", pinned, "--reason", "for the paper")
	if err := os.Truncate(filepath.Join(broken, manifest.FileName), 60); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(w.path("ckpt", manifest.Folder(500, nil, 5)), 0o700); err != nil {
		t.Fatal(err)
	}
	golden(t, "ckpt-list.txt", w.anywhere(w.ok("ckpt", "list", "ckpt")))
	golden(t, "ckpt-list.json", w.anywhere(w.ok("ckpt", "list", "ckpt", "-o", "json")))
	golden(t, "ckpt-show.txt", w.anywhere(w.ok("ckpt", "show", "ckpt")))
	v := decoded[ckpt.Description](t, w.ok("ckpt", "show", filepath.Join(pinned, manifest.FileName), "-o", "json"))
	if v.Step != 300 || v.Datasets[0].InModel != 790 || v.Datasets[0].Settled.Excluded != 10 || v.File[0].Path != "model.safetensors" || v.Ledger != "" {
		t.Errorf("%+v", v)
	}
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"ckpt list nowhere": {exitNotFound, "nowhere: no such file or folder"},
		"ckpt list " + filepath.Join(broken, "model.safetensors"): {exitNotFound, "a file that is no manifest"},
		"ckpt show " + broken:                 {exitFailed, "damaged: not JSON"},
		"ckpt show state":                     {exitNotFound, "state: no checkpoint"},
		"ckpt list":                           {exitUnreachable, "no master answers"},
		"ckpt list ckpt --master 127.0.0.1:1": {exitUnreachable, "no master answers at 127.0.0.1:1"},
		"ckpt pin ckpt":                       {exitUsage, "ckpt holds 5 checkpoints"},
		"ckpt":                                {exitOK, ""},
		"ckpt lst":                            {exitUsage, "did you mean list?"},
	} {
		if r := w.run(strings.Fields(args)...); r.code != want.code || !strings.Contains(r.err, want.says) {
			t.Errorf("%s: %d %s", args, r.code, r.err)
		}
	}
}

func TestVerifyReadsEveryFile(t *testing.T) {
	w := newWorld(t)
	whole := w.saved(100, 1, 100, same)
	flipped := w.saved(200, 1, 100, same)
	if err := os.WriteFile(filepath.Join(flipped, "model.safetensors"), []byte("Model of step 200"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(w.path("ckpt", manifest.Folder(500, nil, 5)), 0o700); err != nil {
		t.Fatal(err)
	}
	if out := w.ok("ckpt", "verify", whole); out != whole+"/headrace-manifest.json: verifies: step 100, 1 files, 17 B\n" {
		t.Error(out)
	}
	r := w.run("ckpt", "verify", "ckpt", "-o", "json")
	if r.code != exitFailed || !strings.Contains(r.err, "1 of 3 checkpoints do not verify") {
		t.Error(r)
	}
	v := decoded[[]ckpt.Verified](t, r.out)
	if len(v) != 3 || v[0].Verifies || v[0].Faults[0].Path != "model.safetensors" || !strings.Contains(v[0].Faults[0].Reason, "its checksum is") || !v[1].Verifies || v[2].State != "half" {
		t.Errorf("%+v", v)
	}
	w.ok("ckpt", "verify", "ckpt", "--sizes")
	if r := w.run("ckpt", "verify", flipped); !strings.Contains(r.out, "does not verify: step 200, 1 of 1 files") {
		t.Error(r)
	}
}

func TestRemovingKeepsWhatARestoreMayNeed(t *testing.T) {
	w := newWorld(t)
	var folders []string
	for i, step := range []int64{100, 200, 300, 400, 500} {
		folders = append(folders, w.saved(step, 1, int64(100*i), same))
	}
	if err := os.WriteFile(filepath.Join(folders[4], "model.safetensors"), []byte("gone wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.ok("ckpt", "pin", folders[0])
	there := func(want ...int) {
		t.Helper()
		for i, f := range folders {
			_, err := os.Stat(f)
			if is := err == nil; is != strings.Contains(fmt.Sprint(want), fmt.Sprint(i)) {
				t.Errorf("checkpoint %d is there: %v; want only the checkpoints %v", i, is, want)
			}
		}
	}
	if r := w.run("ckpt", "rm", folders[1]); r.code != exitUnreachable || !strings.Contains(r.err, "--offline") {
		t.Error(r)
	}
	if r := w.run("ckpt", "rm", folders[1], "--offline"); r.code != exitUsage || !strings.Contains(r.err, "--yes") {
		t.Error(r)
	}
	if r := w.run("ckpt", "rm", "ckpt", "--keep", "0"); r.code != exitUsage {
		t.Error(r)
	}
	there(0, 1, 2, 3, 4)
	r := w.run("ckpt", "rm", folders[0], folders[3], "--offline", "--yes")
	if r.code != exitFailed || !strings.Contains(r.out, "stays: it is pinned") || !strings.Contains(r.out, "stays: it is the newest that verifies") || !strings.Contains(r.err, "2 of 2 checkpoints stay") {
		t.Error(r)
	}
	there(0, 1, 2, 3, 4)
	dry := decoded[[]ckpt.Removed](t, w.ok("ckpt", "rm", "ckpt", "--keep", "1", "--dry-run", "-o", "json"))
	if len(dry) != 4 || dry[0].Step != 400 || dry[0].Removed || !dry[1].Removed || !dry[2].Removed || dry[3].Reason != "it is pinned" {
		t.Errorf("%+v", dry)
	}
	there(0, 1, 2, 3, 4)
	w.ok("ckpt", "rm", "ckpt", "--keep", "1", "--offline", "--yes")
	there(0, 3, 4)
	w.ok("ckpt", "unpin", folders[0])
	w.ok("ckpt", "rm", folders[0], folders[4], "--offline", "--yes")
	there(3)
	if out := w.ok("ckpt", "rm", "ckpt", "--keep", "1", "--offline", "--yes"); out != "nothing to remove\n" {
		t.Error(out)
	}
}

func TestAnAuditSaysWhichRecordsAreInTheModel(t *testing.T) {
	w := newWorld(t)
	a := w.saved(200, 1, 700, same)
	b := w.saved(100, 1, 300, same)
	golden(t, "audit.txt", w.anywhere(w.ok("audit", "ckpt", "--ranges")))
	golden(t, "audit.json", w.anywhere(w.ok("audit", "ckpt", "-o", "json")))
	for record, want := range map[string]string{
		"logs/day_1.tsv/699": "yes: a record whose first byte is logs/day_1.tsv offset 699 (dataset clicks, partition files:clicks)\n    pass 1: in the model\n",
		"day_1.tsv/700":      "no: a record whose first byte is logs/day_1.tsv offset 700 (dataset clicks, partition files:clicks)\n    pass 1: not in the model\n",
		"day_2.tsv/995":      "no: a record whose first byte is logs/day_2.tsv offset 995 (dataset clicks, partition files:clicks)\n    pass 1: excluded: lost: the file was cut off\n",
		"day_2.tsv/2000":     "no: day_2.tsv had no offset 2000 when the checkpoint was saved\n",
	} {
		code := exitFailed
		if strings.HasPrefix(want, "yes") {
			code = exitOK
		}
		if r := w.run("audit", a, "--contains", record); r.out != want || r.code != code || r.err != "" {
			t.Errorf("%s: %+v", record, r)
		}
	}
	if v := decoded[ckpt.Containing](t, w.ok("audit", a, "--contains", "day_2.tsv/500", "-o", "json")); !v.In || v.Found[0].Segment != 1 || v.Found[0].Unit != "bytes" {
		t.Errorf("%+v", v)
	}
	d := decoded[ckpt.Difference](t, w.ok("audit", a, "--diff", b, "-o", "json"))
	if d.Same || len(d.Differences) != 1 || d.Differences[0].UnitsA != 400 || d.Differences[0].UnitsB != 0 || d.Differences[0].OnlyA[0].Name != "logs/day_1.tsv" {
		t.Errorf("%+v", d)
	}
	if out := w.ok("audit", a, "--diff", a); !strings.Contains(out, "the same records are in both models") {
		t.Error(out)
	}
	golden(t, "audit-diff.txt", w.anywhere(w.ok("audit", b, "--diff", a)))
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"audit ckpt --contains day_9.tsv/5":     {exitUsage, "knows nothing called day_9.tsv"},
		"audit nowhere --contains day_1.tsv/1":  {exitUsage, "nowhere"},
		"audit ckpt --contains day_1.tsv":       {exitUsage, "TOPIC/PARTITION/OFFSET"},
		"audit ckpt --contains a/1 --diff ckpt": {exitUsage, "exclude each other"},
		"audit":                                 {exitUsage, "headrace audit needs CKPT"},
	} {
		if r := w.run(strings.Fields(args)...); r.code != want.code || !strings.Contains(r.err, want.says) {
			t.Errorf("%s: %d %s", args, r.code, r.err)
		}
	}
}

func TestARewindChecksWhatItIsTold(t *testing.T) {
	w := newWorld(t)
	mine := w.saved(100, 1, 300, same)
	other := w.saved(200, 1, 300, func(m *manifest.Manifest) { m.Job = "another" })
	w.master("--model", "replicated")
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"rewind default":                       {exitUsage, "--to names no checkpoint"},
		"rewind default --to nowhere":          {exitNotFound, "nowhere: no such file or folder"},
		"rewind default --to ckpt":             {exitUsage, "ckpt holds 2 checkpoints"},
		"rewind default --to " + other:         {exitUsage, "is of job another, not default"},
		"rewind default --to 00000000000000aa": {exitNotFound, "no checkpoint with cut 00000000000000aa is kept"},
		"rewind ctr --job default --to start":  {exitFailed, `this master runs job "default", not "ctr"`},
	} {
		if r := w.run(strings.Fields(args)...); r.code != want.code || !strings.Contains(r.err, want.says) {
			t.Errorf("%s: %d %s", args, r.code, r.err)
		}
	}
	if err := os.WriteFile(filepath.Join(mine, "model.safetensors"), []byte("Model of step 100"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := w.run("rewind", "default", "--to", mine); r.code != exitFailed || !strings.Contains(r.err, "does not verify: model.safetensors: its checksum is") {
		t.Error(r)
	}
	if out := w.ok("ckpt", "list"); out != "job default has no checkpoint: none was saved\n" {
		t.Error(out)
	}
	if v := decoded[[]ckpt.View](t, w.ok("ckpt", "list", "ckpt", "-o", "json")); v[0].Ledger != "another job's" || v[1].Ledger != "unknown" {
		t.Errorf("%+v", v)
	}
	if r := w.run("ckpt", "rm", other, "--yes"); r.code != exitFailed && r.code != exitUsage || !strings.Contains(r.err+r.out, "newest that verifies") {
		t.Error(r)
	}
}
