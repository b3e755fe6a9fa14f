package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/flashckpt/manifest"
)

// Persist writes the checkpoint of a slot to storage: its folder, then the file (or those of its
// parts, see split.go), then the manifest. Each is synced before the next. After a power failure
// at any point the manifest is there with all that it names, or it is not there. A checkpoint
// that is there already is left as it is. In a bucket each file is one object, which appears
// whole; see upload. A slot that holds one rank's part of a sharded checkpoint is written only to
// a bucket, and without the manifest: Gather writes that.
//
// Errors: what the file system says; a slot whose memory is not as it was written; ctx.
func Persist(ctx context.Context, on manifest.FS, s *Slot) error {
	m := s.About.Manifest
	folder := manifest.Dir(s.About.Path)
	if want := manifest.Folder(m.Step, m.Rank, m.Cut.ID); !manifest.Absolute(folder) || filepath.Base(folder) != want || filepath.Base(s.About.Path) != manifest.FileName {
		return fmt.Errorf("%s: its path %s is not %s in a folder %s", s.Path, s.About.Path, manifest.FileName, want)
	}
	unlock, err := s.onlyOne(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := on.ReadFile(s.About.Path); err == nil {
		return manifest.Stays(on, s.About.Path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	bucket, is := on.(manifest.Bucket)
	switch {
	case is && s.About.Shard:
		return s.uploadPart(ctx, bucket)
	case is:
		return s.upload(ctx, bucket, &m)
	case s.About.Shard:
		return fmt.Errorf("%s holds the part of rank %d of a sharded checkpoint: into a folder its trainer writes it", s.Path, s.About.Rank)
	}
	if folder, err = manifest.Begin(on, filepath.Dir(folder), filepath.Base(folder)); err != nil {
		return err
	}
	if m.Files, err = s.writeFiles(ctx, on, folder, nil); err != nil {
		return err
	}
	return manifest.WriteManifest(on, s.About.Path, &m)
}

// onlyOne waits until no other process or goroutine writes the slot to storage: a second
// one would cut off the first one's file.
func (s *Slot) onlyOne(ctx context.Context) (unlock func(), err error) {
	f, err := os.OpenFile(s.Path+".persist", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	got := make(chan error, 1)
	go func() {
		for {
			err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
			if !errors.Is(err, unix.EINTR) {
				got <- err
				return
			}
		}
	}()
	select {
	case err := <-got:
		if err != nil {
			return nil, errors.Join(&os.PathError{Op: "flock", Path: f.Name(), Err: err}, f.Close())
		}
		return func() { _ = f.Close() }, nil
	case <-ctx.Done():
		go func() { // ends when the other writer has ended
			<-got
			_ = f.Close()
		}()
		return nil, context.Cause(ctx)
	}
}

// write writes the image as a file, which is synced when it returns.
func (s *Slot) write(ctx context.Context, on manifest.FS, folder, name string) (file manifest.File, err error) {
	if d, is := on.(Direct); is && filepath.Base(name) == name {
		crc, ok, err := d.image(filepath.Join(folder, name), s.image(), s.padded(), func() error { return context.Cause(ctx) })
		if ok || err != nil {
			return manifest.File{Path: name, Size: s.Bytes, CRC: crc}, err
		}
	}
	err = guarded(func() error {
		file, err = manifest.WriteFile(on, folder, name, &reader{ctx: ctx, from: bytes.NewReader(s.image())})
		return err
	})
	return file, err
}

// fileOf returns the file name that the state gives.
func fileOf(state json.RawMessage) (string, error) {
	var v struct {
		File string `json:"file"`
	}
	if err := json.Unmarshal(state, &v); err != nil {
		return "", fmt.Errorf("its state cannot be read: %w", err)
	}
	if v.File == "" {
		return "", errors.New("its state names no file")
	}
	return v.File, nil
}

// reader ends with its context.
type reader struct {
	ctx  context.Context
	from io.Reader
}

func (r *reader) Read(b []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.from.Read(b[:min(len(b), 4<<20)])
}

// Saved is what PersistNewest did with one rank's newest checkpoint.
type Saved struct {
	Checkpoint Checkpoint
	Err        error // nil: it is on storage
}

// Left says whose checkpoints to look for.
type Left struct {
	Job   string
	Run   string   // About.Run
	Ranks []uint32 // private: these; replicated: rank 0 has the group's state; nil: all
}

// PersistNewest writes to storage what trainers have left in this node's memory and is
// not there yet: the newest checkpoint of each private rank, or that of rank 0 of a
// replicated group, whose state is the group's. It also writes the newest sharded checkpoint
// whose parts are all on this node. Call it when the trainers have ended.
//
// on gives where a manifest's path lies.
func PersistNewest(ctx context.Context, on func(path string) manifest.FS, root string, of Left) (all []Saved, err error) {
	folders, err := Folders(root, of.Job)
	if err != nil {
		return nil, err
	}
	for i := range folders {
		held, err := folders[i].Own()
		if err != nil {
			return all, err
		}
		all = append(all, shardsLeft(ctx, on, held, of.Run)...)
		for j, h := range held {
			m, rank := &h.About.Manifest, h.About.Rank
			if h.About.Shard {
				continue
			}
			if j > 0 && held[j-1].About.Rank == rank || h.About.Run != of.Run {
				continue // older, or of others
			}
			if m.Rank == nil && rank != 0 || m.Rank != nil && of.Ranks != nil && !slices.Contains(of.Ranks, rank) {
				continue
			}
			on := on(h.About.Path)
			if _, err := on.ReadFile(h.About.Path); err == nil {
				continue
			}
			all = append(all, Saved{h, persist(ctx, on, h.Slot)})
		}
	}
	return all, nil
}

func persist(ctx context.Context, on manifest.FS, slot string) error {
	s, err := Open(slot)
	if err != nil {
		return err
	}
	return errors.Join(Persist(ctx, on, s), s.Close())
}
