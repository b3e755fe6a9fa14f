// Package project says to which folder a job belongs. A job is begun in the folder in which
// `headrace` runs for it first, and its state folder keeps that folder's name. Without this, a
// second project with the same job name would meet the records and checkpoints of the first.
package project

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/headrace/headrace/internal/config"
)

// begunIn is a file of the state folder that names the folder in which the job was begun.
const begunIn = "begun-in"

// begunAt is the folder in which the job of that state was begun, "" if nothing says it.
func begunAt(state string) (string, error) {
	text, err := os.ReadFile(filepath.Join(state, begunIn))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSuffix(string(text), "\n"), err
}

// Elsewhere is the folder in which the job of that state was begun, if it is not here and
// still there; else "". A job whose folder is gone belongs to the next folder that runs it.
func Elsewhere(state, here string) (string, error) {
	there, err := begunAt(state)
	if err != nil || there == "" || there == here {
		return "", err
	}
	if _, err := os.Stat(there); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return there, nil
}

// Remember notes that the job of that state was begun here, unless it was begun in another
// folder that still exists.
func Remember(state, here string) error {
	if there, err := begunAt(state); err == nil && there != "" {
		if _, err := os.Stat(there); err == nil {
			return nil
		}
	}
	return os.WriteFile(filepath.Join(state, begunIn), []byte(here+"\n"), 0o600)
}

// Another is a name for a job of the folder here that is not job.
func Another(here, job string) string {
	name := jobFor(here)
	if name == job {
		name += "-2"
	}
	return name
}

// Own returns the name of folder's job. states has the state folders of all jobs. If a job was
// begun in folder, it is that one. Otherwise it is wanted, or a longer name if another folder
// has begun a job of that name; there is that folder then. The same folder always gets the same
// name, also after other folders have gone.
func Own(states, folder, wanted string) (job, there string, err error) {
	if real, err := filepath.EvalSymlinks(folder); err == nil { // else it is not made yet
		folder = real
	}
	sum := sha256.Sum256([]byte(folder))
	all := []string{wanted, joined(jobFor(folder), wanted), joined(jobFor(folder), wanted, hex.EncodeToString(sum[:4]))}
	if there, err = Elsewhere(filepath.Join(states, wanted), folder); err != nil {
		return "", "", err
	}
	for _, job = range all {
		if in, err := begunAt(filepath.Join(states, job)); err == nil && in == folder {
			return job, there, nil
		}
	}
	if there == "" {
		return wanted, "", nil
	}
	for _, job = range all[1:] {
		if other, err := Elsewhere(filepath.Join(states, job), folder); err != nil || other == "" {
			return job, there, err
		}
	}
	return job, there, nil
}

// joined makes a job's name of several names. If it would be too long, the second one is cut.
func joined(names ...string) string {
	if over := len(strings.Join(names, "-")) - config.LongestName; over > 0 {
		names[1] = names[1][:len(names[1])-over]
	}
	return strings.Join(names, "-")
}

// jobFor makes a job's name of a folder's name.
func jobFor(folder string) string {
	name := strings.Map(func(r rune) rune {
		if r < 128 && strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r) {
			return r
		}
		return '-'
	}, filepath.Base(folder))
	if name = strings.Trim(name, "-._"); len(name) > 40 {
		name = strings.Trim(name[:40], "-._")
	}
	if name == "" {
		return "second"
	}
	return name
}
