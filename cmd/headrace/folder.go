package main

import (
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
	text, err := os.ReadFile(filepath.Join(a.cfg.State, begunIn))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	there := strings.TrimSuffix(string(text), "\n")
	if there == here {
		return nil
	}
	if _, err := os.Stat(there); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	name := jobFor(here)
	if name == a.cfg.Job {
		name += "-2"
	}
	return advice.Failed.Errorf("`job: "+name+"` in "+config.DefaultFile+" here, or --job "+name+", begins a job of this folder; --job "+a.cfg.Job+" goes on with that one",
		"job %s was begun in %s, and this is %s: it has other records and checkpoints", a.cfg.Job, there, here)
}

// rememberProject notes in which folder the job was begun, once its state folder is there.
func (a *app) rememberProject() error {
	here, err := workingFolder()
	if err != nil {
		return err
	}
	path := filepath.Join(a.cfg.State, begunIn)
	if text, err := os.ReadFile(path); err == nil {
		there := strings.TrimSuffix(string(text), "\n")
		if _, err := os.Stat(there); err == nil {
			return nil
		}
	}
	return os.WriteFile(path, []byte(here+"\n"), 0o600)
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
