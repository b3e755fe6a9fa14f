package jobfile

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func file(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "job.yaml")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestAFileOfAJobIsRead(t *testing.T) {
	name := file(t, `
specs: [clicks.yaml, /abs/x.yaml]
model: shared
roles:
  evaluator: {count: 1, command: python evaluate.py --all, env: {A: "1"}}
  worker: 2
  chief: 1
  ps: 1
command: [python, train.py]
env: {B: x=y}
max_restarts: 7
`)
	got, err := Read(name)
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Dir(name)
	want := &Job{
		Folder: folder, Specs: []string{filepath.Join(folder, "clicks.yaml"), "/abs/x.yaml"}, Model: "shared",
		Command: []string{"python", "train.py"}, Env: []string{"B=x=y"}, MaxRestarts: 7,
		Roles: []Role{{Name: "ps", Count: 1}, {Name: "chief", Count: 1}, {Name: "worker", Count: 2},
			{Name: "evaluator", Count: 1, Command: []string{"python", "evaluate.py", "--all"}, Env: []string{"A=1"}}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	if !Is(name) || Is(file(t, "name: clicks\n")) || Is("/no/such.yaml") {
		t.Error("Is does not recognize a job file")
	}
}

func TestMistakesNameTheirLine(t *testing.T) {
	for text, want := range map[string]string{
		"roles: {wrker: 2}\n":                       "job.yaml:1: roles.wrker: no such field in roles; did you mean worker?",
		"roles:\n  chief: 2\n":                      `job.yaml:2: roles.chief: "2": must be a number from 0 to 1`,
		"roles: {ps: 1}\n":                          "job.yaml:1: roles: nothing trains; give it a chief",
		"roles: {chief: 1}\ncommand: []\n":          "job.yaml:2: command: is empty",
		"roles: {chief: 1}\nenv: [A=1]\n":           "job.yaml:2: env: must be a mapping of names to values",
		"roles: {chief: 1}\nenv: {A: [1]}\n":        "job.yaml:2: env.A: must be one value",
		"roles: {chief: 1}\nmax_restart: 3\n":       "did you mean max_restarts?",
		"roles: {chief: 1}\n---\nroles: {ps: 1}\n":  "a second document",
		"roles: [\n":                                "is not YAML",
		"roles: {chief: 1}\nroles: {worker: 1}\n":   "is written twice",
		"roles: {chief: 1}\nmax_restarts: many\n":   `max_restarts: "many"`,
		"roles: {chief: {command: python train}}\n": "",
	} {
		_, err := Read(file(t, text))
		if want == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n got %v\nwant %s", text, err, want)
		}
	}
}
