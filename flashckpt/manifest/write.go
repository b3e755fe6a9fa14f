package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/headrace/headrace/shardsvc/cut"
	"github.com/minio/crc64nvme"
)

// Folder is the name of a checkpoint's folder: its step, so that names sort; for private
// its rank; and its cut, so that no attempt writes into the folder of another. Readers do
// not parse the name.
func Folder(step int64, rank *uint32, cut cut.ID) string {
	name := fmt.Sprintf("step-%010d", step)
	if rank != nil {
		name += "-rank-" + strconv.FormatUint(uint64(*rank), 10)
	}
	return name + "-" + cut.String()
}

// Begin makes a checkpoint's folder below dir, and what is missing above it. All of
// them are durable when it returns.
func Begin(on FS, dir, name string) (folder string, err error) {
	folder = Join(dir, name)
	made, err := makeFolders(on, folder)
	if err != nil {
		return "", err
	}
	return folder, syncAbove(on, folder, max(made, 1))
}

// WriteFile writes one file of a checkpoint and returns its entry for the manifest. The
// bytes are durable when it returns. The name is durable after WriteManifest, which syncs
// the folder.
func WriteFile(on FS, folder, path string, from io.Reader) (File, error) {
	if !within(path) || ours(path) {
		return File{}, fmt.Errorf("%q is no name for a file of a checkpoint", path)
	}
	full := Join(folder, filepath.FromSlash(path))
	if below := Dir(full); below != Clean(folder) {
		if _, err := makeFolders(on, below); err != nil {
			return File{}, err
		}
	}
	sum := crc64nvme.New()
	n, err := put(on, full, io.TeeReader(from, sum))
	if err != nil {
		return File{}, err
	}
	for d := Dir(full); d != Clean(folder); d = Dir(d) {
		if err := on.SyncDir(d); err != nil {
			return File{}, err
		}
	}
	return File{Path: path, Size: n, CRC: CRC64(sum.Sum64())}, nil
}

// put writes a file and syncs it.
func put(on FS, path string, from io.Reader) (n int64, err error) {
	f, err := on.Create(path)
	if err != nil {
		return 0, err
	}
	if n, err = io.Copy(f, from); err == nil {
		err = f.Sync()
	}
	return n, errors.Join(err, f.Close())
}

// WriteManifest completes a checkpoint: it syncs the folder with the files' names, writes
// the manifest under a temporary name, syncs it, renames it, and syncs the folder. The
// files must be synced before (WriteFile does it). After an error the manifest may be
// there or not. In a bucket it is one conditional put: fs.ErrExist if a manifest is there.
func WriteManifest(on FS, path string, m *Manifest) error {
	b, err := m.Encode()
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return commit(on, path, m.Cut.ID, b)
}

// WritePart says that a rank's files of a sharded save are on storage. It replaces the part
// of an earlier attempt.
func WritePart(on FS, folder string, p *Part) error {
	b, err := p.Encode()
	if err != nil {
		return fmt.Errorf("%s: %w", Join(folder, PartName(p.Rank)), err)
	}
	path := Join(folder, PartName(p.Rank))
	if _, is := on.(Bucket); is { // it appears whole
		_, err := put(on, path, bytes.NewReader(b))
		return err
	}
	return commit(on, path, p.Cut, b)
}

// commit is temp, fsync, rename, fsync of the folder.
func commit(on FS, path string, cut cut.ID, b []byte) error {
	if bucket, is := on.(Bucket); is {
		return bucket.PutNew(path, bytes.NewReader(b), int64(len(b)))
	}
	folder := Dir(path)
	if err := on.SyncDir(folder); err != nil {
		return err
	}
	temp := Join(folder, "."+filepath.Base(path)+"."+cut.String()+".tmp")
	if _, err := put(on, temp, bytes.NewReader(b)); err != nil {
		return errors.Join(err, ignoreMissing(on.Remove(temp)))
	}
	if err := on.Rename(temp, path); err != nil {
		return errors.Join(err, ignoreMissing(on.Remove(temp)))
	}
	return on.SyncDir(folder)
}

// Stays makes sure that a manifest that was found survives a power failure: its writer may
// have died between the rename and the sync of the folder. Call it before a restore of the
// checkpoint, and before a broker is told of it.
func Stays(on FS, path string) error {
	err := on.SyncDir(Dir(path))
	switch {
	case err == nil:
	case errors.Is(err, syscall.EINVAL), errors.Is(err, syscall.ENOTSUP), errors.Is(err, syscall.EROFS):
		// no fsync of folders, or read-only here
	default:
		return fmt.Errorf("the folder of %s cannot be synced: %w", path, err)
	}
	return nil
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
