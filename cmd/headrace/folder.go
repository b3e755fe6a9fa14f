package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/config"
	"github.com/headrace/headrace/internal/project"
)

// sameProject refuses to go on with a job that was begun in another folder, unless the
// user names the job or its state.
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
	there, err := project.Elsewhere(a.cfg.State, here)
	if err != nil || there == "" {
		return err
	}
	return advice.Failed.Errorf("`job: "+project.Another(here, a.cfg.Job)+"` in "+config.DefaultFile+" here, or --job "+project.Another(here, a.cfg.Job)+", begins a job of this folder; --job "+a.cfg.Job+" goes on with that one",
		"job %s was begun in %s, and this is %s: the job has the records and checkpoints of that other folder", a.cfg.Job, there, here)
}

// ownJob returns a name for a job of folder. If a job of the wanted name was begun in another
// folder, the name is another one, and there is that folder.
func (a *app) ownJob(folder, wanted string) (job, there string, err error) {
	if a.cfg.From("state") != "" {
		return wanted, "", nil
	}
	return project.Own(filepath.Dir(a.cfg.State), folder, wanted)
}

// rememberProject notes in which folder the job was begun, once its state folder is there.
func (a *app) rememberProject() error {
	here, err := workingFolder()
	if err != nil {
		return err
	}
	return project.Remember(a.cfg.State, here)
}

func workingFolder() (string, error) {
	here, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(here)
}
