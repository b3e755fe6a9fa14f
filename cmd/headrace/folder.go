package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/config"
)

// begunIn is a file of the state folder that names the folder in which the job was begun.
const begunIn = "begun-in"

// sameProject refuses to go on with a job that was begun in another folder, unless the
// user names the job or its state: a second project would else meet the records and
// checkpoints of the first. A job whose folder is gone belongs to whoever comes.
func (a *app) sameProject() error {
	byUser := func(key string) bool {
		from := a.cfg.From(key)
		return strings.HasPrefix(from, "--") || strings.HasPrefix(from, "HEADRACE_")
	}
	if a.cfg.From("state") != "" || byUser("job") {
		return nil
	}
	here, err := workingFolder()
	if err != nil {
		return err
	}
	there, err := begunElsewhere(a.cfg.State, here)
	if err != nil || there == "" {
		return err
	}
	name := jobFor(here)
	if name == a.cfg.Job {
		name += "-2"
	}
	return advice.Failed.Errorf("`job: "+name+"` in "+config.DefaultFile+" here, or --job "+name+", begins a job of this folder; --job "+a.cfg.Job+" goes on with that one",
		"job %s was begun in %s, and this is %s: it has other records and checkpoints", a.cfg.Job, there, here)
}

// begunAt is the folder in which the job of that state was begun, "" if nothing says it.
func begunAt(state string) (string, error) {
	text, err := os.ReadFile(filepath.Join(state, begunIn))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSuffix(string(text), "\n"), err
}

// begunElsewhere is the folder in which the job of that state was begun, if it is not here
// and still there; else "".
func begunElsewhere(state, here string) (string, error) {
	there, err := begunAt(state)
	if err != nil || there == "" || there == here {
		return "", err
	}
	if _, err := os.Stat(there); errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return there, nil
}

// ownJob is the name for a job of folder: the job that was begun there, else wanted, unless a
// job of that name was begun in another folder, which is there then. The same folder always
// gets the same name, also after other folders have gone.
func (a *app) ownJob(folder, wanted string) (job, there string, err error) {
	if a.cfg.From("state") != "" {
		return wanted, "", nil
	}
	if real, err := filepath.EvalSymlinks(folder); err == nil { // else it is not made yet
		folder = real
	}
	sum := sha256.Sum256([]byte(folder))
	all := []string{wanted, joined(jobFor(folder), wanted), joined(jobFor(folder), wanted, hex.EncodeToString(sum[:4]))}
	states := filepath.Dir(a.cfg.State)
	if there, err = begunElsewhere(filepath.Join(states, wanted), folder); err != nil {
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
		if other, err := begunElsewhere(filepath.Join(states, job), folder); err != nil || other == "" {
			return job, there, err
		}
	}
	return job, there, nil
}

// joined is a job's name of several; the second one is cut where the whole is too long.
func joined(names ...string) string {
	if over := len(strings.Join(names, "-")) - config.LongestName; over > 0 {
		names[1] = names[1][:len(names[1])-over]
	}
	return strings.Join(names, "-")
}

// rememberProject notes in which folder the job was begun, once its state folder is there.
func (a *app) rememberProject() error {
	here, err := workingFolder()
	if err != nil {
		return err
	}
	if there, err := begunAt(a.cfg.State); err == nil && there != "" {
		if _, err := os.Stat(there); err == nil {
			return nil
		}
	}
	return os.WriteFile(filepath.Join(a.cfg.State, begunIn), []byte(here+"\n"), 0o600)
}

func workingFolder() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(here)
}

// jobFor makes a job's name of a folder's.
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
