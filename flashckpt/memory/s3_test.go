//go:build s3

package memory

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/headrace/headrace/flashckpt/bucket"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/storage/s3"
)

var server *testbroker.S3

func TestMain(m *testing.M) {
	var err error
	if server, err = testbroker.StartS3(context.Background(), nil); err == nil {
		err = server.Bucket("test")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func config() s3.Config {
	return s3.Config{Endpoint: server.Endpoint(), Region: "us-east-1", AccessKey: server.AccessKey, SecretKey: server.SecretKey}
}

// inBucket returns a folder of checkpoints in the bucket, and a file system for its paths.
func inBucket(t *testing.T) (dir string, places *bucket.Places, on manifest.Bucket) {
	places = bucket.New(func(url string) (bucket.Client, error) { return s3.Open(config(), url) })
	dir = "s3://test/" + strings.ReplaceAll(t.Name(), "/", "-")
	return dir, places, places.On(t.Context(), dir, manifest.OS{}).(manifest.Bucket)
}

func store(t *testing.T, on manifest.FS, slot string) error {
	t.Helper()
	s, err := Open(slot)
	if err != nil {
		t.Fatal(err)
	}
	return errors.Join(Persist(t.Context(), on, s), s.Close())
}

// whole loads the checkpoint at path. It fails if a file is not as the manifest says.
func whole(t *testing.T, on manifest.FS, path string) *manifest.Manifest {
	t.Helper()
	m, err := manifest.Load(on, path)
	if err != nil {
		t.Fatal(err)
	}
	faults, err := manifest.Verify(t.Context(), manifest.Dir(path), m, manifest.Verifying{On: on})
	if err != nil || len(faults) > 0 {
		t.Fatalf("the checkpoint at %s has the faults %v (%v)", path, faults, err)
	}
	return m
}

func names(t *testing.T, on manifest.FS, folder string) (all []string) {
	t.Helper()
	found, err := on.ReadDir(folder)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, n := range found {
		all = append(all, n.Name)
	}
	return all
}

func TestASlotBecomesACheckpointInABucket(t *testing.T) {
	dir, places, on := inBucket(t)
	for _, size := range []int{8000, 40 << 20} { // uploaded in one request, and in parts
		slot, at := writeSlot(t, t.TempDir(), dir, 0, int64(size), image(size))
		if err := store(t, on, slot); err != nil {
			t.Fatal(err)
		}
		whole(t, on, at)
		if err := store(t, on, slot); err != nil {
			t.Errorf("the same slot was stored again, and got %v", err)
		}
		if got := names(t, on, manifest.Dir(at)); !slices.Equal(got, []string{manifest.FileName, "state.safetensors"}) {
			t.Errorf("%v", got)
		}
		into := t.TempDir()
		if err := places.Fetch(t.Context(), at, into, nil); err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(path.Join(into, "state.safetensors")); err != nil || !bytes.Equal(b, image(size)) {
			t.Errorf("the fetched file has %d bytes (%v), or differs from the slot", len(b), err)
		}
	}
	found, err := manifest.Find(on, dir)
	if err != nil || len(found) != 2 || found[0].Manifest.Step != 40<<20 {
		t.Fatalf("%+v, %v", found, err)
	}
	into := t.TempDir()
	if err := manifest.SetPin(on, found[1].Path, manifest.Pin{Reason: "kept"}); err != nil {
		t.Fatal(err)
	}
	mirrored := func() []manifest.Checkpoint {
		t.Helper()
		if err := places.Mirror(t.Context(), dir, into); err != nil {
			t.Fatal(err)
		}
		copies, err := manifest.Find(manifest.OS{}, into)
		if err != nil {
			t.Fatal(err)
		}
		return copies[:slices.IndexFunc(append(copies, manifest.Checkpoint{Err: manifest.ErrHalf}), func(c manifest.Checkpoint) bool { return c.Err != nil })]
	}
	if copies := mirrored(); len(copies) != 2 || copies[0].Pin != nil || copies[1].Pin == nil {
		t.Errorf("%+v", copies)
	}
	// A pin with another reason is mirrored too, even if it has the same number of bytes.
	if err := manifest.SetPin(on, found[1].Path, manifest.Pin{Reason: "held"}); err != nil {
		t.Fatal(err)
	}
	if copies := mirrored(); copies[1].Pin == nil || copies[1].Pin.Reason != "held" {
		t.Errorf("%+v", copies)
	}
	for range 2 { // the second time there is nothing to remove
		if err := places.Remove(t.Context(), found[0].Path); err != nil {
			t.Fatal(err)
		}
	}
	if copies := mirrored(); len(copies) != 1 || copies[0].Manifest.Step != 8000 {
		t.Errorf("%+v", copies)
	}
	if got := names(t, on, manifest.Dir(found[0].Path)); len(got) != 0 {
		t.Errorf("%v is left", got)
	}
}

func TestOfTwoWritersOfOneCheckpointOneWins(t *testing.T) {
	dir, _, on := inBucket(t)
	for round := range int64(5) {
		var slots [4]string
		var at string
		for i := range slots {
			slots[i], at = writeSlot(t, t.TempDir(), dir, 0, 100+round, image(300_000))
		}
		var wg sync.WaitGroup
		for _, slot := range slots {
			wg.Go(func() {
				if err := store(t, on, slot); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		m := whole(t, on, at)
		if got := names(t, on, manifest.Dir(at)); len(got) != 2 || !slices.Contains(got, m.Files[0].Path) {
			t.Errorf("round %d: the folder has %v, want the manifest and its file %v", round, got, m.Files[0].Path)
		}
	}
}

func TestWhatAKilledUploadHasLeftIsNeitherUsedNorWrittenOver(t *testing.T) {
	dir, places, on := inBucket(t)
	slot, at := writeSlot(t, t.TempDir(), dir, 0, 7, image(9000))
	left := manifest.Join(manifest.Dir(at), "state.safetensors")
	if err := on.PutNew(left, strings.NewReader("half"), 4); err != nil {
		t.Fatal(err)
	}
	if found, err := manifest.Find(on, dir); err != nil || len(found) != 1 || !errors.Is(found[0].Err, manifest.ErrHalf) {
		t.Fatalf("%+v, %v", found, err)
	}
	if err := store(t, on, slot); err != nil {
		t.Fatal(err)
	}
	m := whole(t, on, at)
	if name, err := fileOf(m.State); err != nil || name != "state-1.safetensors" || m.Files[0].Path != name {
		t.Errorf("%s, %v, %+v", m.State, err, m.Files)
	}
	if b, err := on.ReadFile(left); err != nil || string(b) != "half" {
		t.Errorf("the file of the killed upload is %q (%v), want half", b, err)
	}
	// Other attempts left files, and uploads that did not end.
	half, private := manifest.Folder(3, nil, 3), manifest.Folder(3, new(uint32), 4)
	for _, folder := range []string{half, private} {
		if err := on.PutNew(manifest.Join(dir, folder, "state.safetensors"), strings.NewReader("half"), 4); err != nil {
			t.Fatal(err)
		}
	}
	core := uploads(t)
	prefix := strings.TrimPrefix(dir, "s3://test/")
	for _, folder := range []string{manifest.Folder(4, nil, 5), private} {
		if _, err := core.NewMultipartUpload(t.Context(), "test", prefix+"/"+folder+"/state.safetensors", minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if removed, err := places.Sweep(t.Context(), at, time.Hour); err != nil || len(removed) != 0 {
		t.Errorf("leftovers that are newer than an hour were removed: %v (%v)", removed, err)
	}
	if removed, err := places.Sweep(t.Context(), at, -time.Hour); err != nil || !slices.Equal(removed, []string{dir + "/" + half}) {
		t.Errorf("%v, %v", removed, err)
	}
	whole(t, on, at)
	var open []string
	for u := range core.ListIncompleteUploads(t.Context(), "test", prefix+"/", true) {
		open = append(open, u.Key)
	}
	if len(open) != 1 || !strings.Contains(open[0], private) {
		t.Errorf("open uploads are %v, want only that of the private checkpoint", open)
	}
}

func uploads(t *testing.T) minio.Core {
	t.Helper()
	c, err := minio.New(strings.TrimPrefix(server.Endpoint(), "http://"), &minio.Options{Creds: credentials.NewStaticV4(server.AccessKey, server.SecretKey, ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	return minio.Core{Client: c}
}

func TestChangedMemoryBecomesNoCheckpointInABucket(t *testing.T) {
	dir, _, on := inBucket(t)
	slot, at := writeSlot(t, t.TempDir(), dir, 0, 7, image(20<<20))
	change(t, slot, page+100)
	if err := store(t, on, slot); err == nil || !strings.Contains(err.Error(), "memory was changed") {
		t.Fatal(err)
	}
	if got := names(t, on, manifest.Dir(at)); len(got) != 0 {
		t.Errorf("%v", got)
	}
}

func TestABucketThatRefusesOrIsNotThereIsNamed(t *testing.T) {
	c := config()
	c.SecretKey = "wrong"
	refuses := bucket.New(func(url string) (bucket.Client, error) { return s3.Open(c, url) })
	there := bucket.New(func(url string) (bucket.Client, error) { return s3.Open(config(), url) })
	for _, k := range []struct {
		places *bucket.Places
		dir    string
		want   string
	}{
		{refuses, "s3://test/refused", "the secret key does not fit"},
		{there, "s3://nowhere/ckpt", "there is no bucket nowhere"},
		{bucket.None(), "s3://test/none", "opens no buckets"},
	} {
		slot, _ := writeSlot(t, t.TempDir(), k.dir, 0, 7, image(9000))
		errs := []error{store(t, k.places.On(t.Context(), k.dir, manifest.OS{}), slot), k.places.Mirror(t.Context(), k.dir, t.TempDir())}
		_, err := k.places.Identify(t.Context(), k.dir)
		for _, err := range append(errs, err) {
			if err == nil || !strings.Contains(err.Error(), k.want) || !strings.Contains(err.Error(), k.dir) {
				t.Errorf("got %v, want an error that names %s and says %q", err, k.dir, k.want)
			}
		}
	}
}

func TestAFolderInABucketHasOneID(t *testing.T) {
	dir, places, on := inBucket(t)
	var ids [8]string
	var wg sync.WaitGroup
	for i := range ids {
		wg.Go(func() {
			var err error
			if ids[i], err = places.Identify(t.Context(), dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(slices.Compact(slices.Sorted(slices.Values(ids[:])))) != 1 || len(ids[0]) != 16 {
		t.Errorf("eight callers got the ids %v, want one id of 16 characters", ids)
	}
	if err := on.Remove(dir + "/headrace-memory-id"); err != nil {
		t.Fatal(err)
	}
	if id, err := places.Identify(t.Context(), dir); err != nil || id == ids[0] {
		t.Errorf("the emptied folder has the id %s (%v), want a new one", id, err)
	}
}

func TestPartsOfAStateGetObjectsOfTheirOwn(t *testing.T) {
	dir, places, on := inBucket(t)
	slot, at := writeSlotAs(t, t.TempDir(), dir, 0, 1, imageOf(t, parts...), inParts)
	// An upload that was killed has left half a file. It is not written over.
	if err := on.PutNew(manifest.Join(manifest.Dir(at), "model.safetensors"), strings.NewReader("half"), 4); err != nil {
		t.Fatal(err)
	}
	if err := store(t, on, slot); err != nil {
		t.Fatal(err)
	}
	m := whole(t, on, at)
	if len(m.Files) != 4 || !strings.Contains(string(m.State), `"model":"model-1.safetensors"`) {
		t.Errorf("%+v, %s", m.Files, m.State)
	}
	into := t.TempDir()
	if err := places.Fetch(t.Context(), at, into, nil); err != nil {
		t.Fatal(err)
	}
	if got := readTensors(t, path.Join(into, "model-1.safetensors")); !slices.Equal(got, []tensor{{"b", ""}, {"w", "wwwwwwww"}}) {
		t.Errorf("%v", got)
	}
	// A flipped bit leaves no object and no manifest.
	slot, at = writeSlotAs(t, t.TempDir(), dir, 0, 2, imageOf(t, parts...), inParts)
	change(t, slot, page+int64(len(imageOf(t, parts...)))-1)
	if err := store(t, on, slot); err == nil || !strings.Contains(err.Error(), "its memory was changed") {
		t.Errorf("%v", err)
	}
	if got := names(t, on, manifest.Dir(at)); len(got) != 0 {
		t.Errorf("%v is left", got)
	}
}

func TestAShardedCheckpointInABucketIsThereWhenAllPartsAre(t *testing.T) {
	dir, places, on := inBucket(t)
	root := t.TempDir()
	slot0, at := writeShard(t, root, dir, 0, 2)
	slot1, _ := writeShard(t, root, dir, 1, 2)
	gather := func(slot string) (missing []uint32, err error) {
		t.Helper()
		s, err := Open(slot)
		if err != nil {
			t.Fatal(err)
		}
		missing, err = Gather(on, s)
		return missing, errors.Join(err, s.Close())
	}
	// An upload that was killed has left half a file.
	left := manifest.Join(manifest.Dir(at), "state-rank-1.safetensors")
	if err := on.PutNew(left, strings.NewReader("half"), 4); err != nil {
		t.Fatal(err)
	}
	if missing, err := gather(slot0); err != nil || !slices.Equal(missing, []uint32{0, 1}) {
		t.Fatalf("%v, %v", missing, err)
	}
	for range 2 { // the second part replaces the first
		if err := store(t, on, slot0); err != nil {
			t.Fatal(err)
		}
	}
	if missing, err := gather(slot0); err != nil || !slices.Equal(missing, []uint32{1}) {
		t.Fatalf("%v, %v", missing, err)
	}
	if got := names(t, on, manifest.Dir(at)); slices.Contains(got, manifest.FileName) {
		t.Fatalf("there is a manifest, though a part is missing: %v", got)
	}
	change(t, slot1, page+4999)
	if err := store(t, on, slot1); err == nil || !strings.Contains(err.Error(), "memory was changed") {
		t.Fatal(err)
	}
	if missing, err := gather(slot0); err != nil || !slices.Equal(missing, []uint32{1}) {
		t.Fatalf("missing are the parts %v (%v), want 1: changed memory must not become a part", missing, err)
	}
	change(t, slot1, page+4999) // changes it back
	if err := store(t, on, slot1); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time the manifest exists
		if missing, err := gather(slot0); err != nil || len(missing) > 0 {
			t.Fatalf("%v, %v", missing, err)
		}
	}
	m := whole(t, on, at)
	if len(m.Files) != 2 || *m.Files[0].Rank != 0 || *m.Files[1].Rank != 1 || m.Files[1].Path != "state-rank-1-1.safetensors" || !strings.Contains(string(m.State), m.Files[1].Path) {
		t.Errorf("%+v, %s", m.Files, m.State)
	}
	for rank := range uint32(3) {
		into := t.TempDir()
		if err := places.Fetch(t.Context(), at, into, &rank); err != nil {
			t.Fatal(err)
		}
		found, err := os.ReadDir(into)
		if err != nil || rank < 2 && (len(found) != 1 || found[0].Name() != m.Files[rank].Path) || rank == 2 && len(found) != 0 {
			t.Errorf("rank %d has fetched %v (%v), want only its own file", rank, found, err)
		}
	}
	// The file of rank 1 is replaced by another object. The checksum shows it.
	key := manifest.Join(manifest.Dir(at), m.Files[1].Path)
	if err := on.Remove(key); err != nil {
		t.Fatal(err)
	}
	if err := on.PutNew(key, bytes.NewReader(make([]byte, m.Files[1].Size)), m.Files[1].Size); err != nil {
		t.Fatal(err)
	}
	if err := places.Fetch(t.Context(), at, t.TempDir(), new(uint32)); err == nil || !strings.Contains(err.Error(), "its checksum is") {
		t.Error(err)
	}
	c, err := s3.Open(config(), dir)
	if err != nil {
		t.Fatal(err)
	}
	_, crc, err := c.Sum(t.Context(), path.Base(manifest.Dir(at))+"/"+m.Files[0].Path)
	if err != nil || crc == nil || manifest.CRC64(*crc) != m.Files[0].CRC {
		t.Errorf("the bucket says that the checksum is %v (%v), want %v", crc, err, m.Files[0].CRC)
	}
	if err := places.Remove(t.Context(), at); err != nil || len(names(t, on, manifest.Dir(at))) != 0 {
		t.Error(err, names(t, on, manifest.Dir(at)))
	}
}

func TestWhatKilledRanksLeftGoesToABucketWithAllParts(t *testing.T) {
	dir, places, on := inBucket(t)
	root := t.TempDir()
	writeShard(t, root, dir, 0, 1)
	_, at := writeShard(t, root, dir, 0, 2)
	writeShard(t, root, dir, 1, 2)
	writeShard(t, root, dir, 1, 3)
	saved, err := PersistNewest(t.Context(), func(p string) manifest.FS { return places.On(t.Context(), p, Direct{}) }, root, Left{Job: "default", Run: "r"})
	if err != nil || len(saved) != 1 || saved[0].Err != nil || saved[0].Checkpoint.About.Path != at {
		t.Fatalf("%+v, %v", saved, err)
	}
	if m := whole(t, on, at); len(m.Files) != 2 || *m.Files[1].Rank != 1 {
		t.Errorf("%+v", m.Files)
	}
	if found, err := manifest.Find(on, dir); err != nil || len(found) != 1 {
		t.Errorf("%+v, %v", found, err)
	}
}
