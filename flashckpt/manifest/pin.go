package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// Pin says why a checkpoint stays. It is a file beside the manifest, so that
// every tool that removes checkpoints sees it, with or without a master.
type Pin struct {
	Pinned time.Time `json:"pinned"`
	Reason string    `json:"reason,omitempty"`
}

// PinPath is where the pin of a manifest is.
func PinPath(manifest string) string { return manifest + ".pinned" }

// Errors of a pin and a removal at the same time.
var (
	ErrPinned  = errors.New("it is pinned")
	ErrRemoved = errors.New("somebody is removing it")
)

// SetPin pins a checkpoint, durably. Pinning again changes the reason.
//
// It writes the pin and then looks for the mark of a removal; BeginRemoval writes its mark
// and then looks for a pin. So at least one of the two sees the other: a checkpoint that
// SetPin has pinned is not removed. If a removal has begun, SetPin takes its pin away and
// returns ErrRemoved.
func SetPin(on FS, manifest string, p Pin) error {
	before, err := readPin(on, manifest)
	if err != nil {
		return err
	}
	if err := writePin(on, manifest, p); err != nil || before != nil {
		return err
	}
	begun, err := removalBegan(on, manifest)
	if err == nil && !begun {
		return nil
	}
	if err == nil {
		err = ErrRemoved
	}
	return errors.Join(err, Unpin(on, manifest))
}

func writePin(on FS, manifest string, p Pin) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	path := PinPath(manifest)
	if _, is := on.(Bucket); is {
		_, err := put(on, path, bytes.NewReader(append(b, '\n')))
		return err
	}
	temp := Join(Dir(path), "."+filepath.Base(path)+".tmp")
	if _, err := put(on, temp, bytes.NewReader(append(b, '\n'))); err != nil {
		return errors.Join(err, ignoreMissing(on.Remove(temp)))
	}
	if err := on.Rename(temp, path); err != nil {
		return errors.Join(err, ignoreMissing(on.Remove(temp)))
	}
	return on.SyncDir(Dir(path))
}

// Unpin takes the pin away, durably.
func Unpin(on FS, manifest string) error {
	if err := ignoreMissing(on.Remove(PinPath(manifest))); err != nil {
		return err
	}
	return on.SyncDir(Dir(manifest))
}

// readPin reads a pin. A pin that cannot be read still pins, so `touch` makes one.
func readPin(on FS, manifest string) (*Pin, error) {
	b, err := on.ReadFile(PinPath(manifest))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("its pin: %w", err)
	}
	p := &Pin{}
	if json.Unmarshal(b, p) != nil {
		p = &Pin{Reason: fmt.Sprintf("%.200q", bytes.TrimSpace(b))}
	}
	return p, nil
}
