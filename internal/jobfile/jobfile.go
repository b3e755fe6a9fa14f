// Package jobfile reads the file of `headrace run FILE`: the tasks of a TensorFlow cluster,
// their command, and the datasets that they read.
//
//	specs: [clicks.yaml]
//	roles: {ps: 1, chief: 1, worker: 2, evaluator: 1}
//	command: [python, train.py]
package jobfile

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headrace/headrace/internal/dataset"
)

// defaultMaxRestarts is max_restarts of a file that does not say it.
const defaultMaxRestarts = 100

// names of roles, in the order in which they start: a model is served before it is trained.
var names = []string{"ps", "chief", "worker", "evaluator"}

// Job is what a file says.
type Job struct {
	Folder      string   // of the file: commands run there
	Specs       []string // files of datasets; relative ones are relative to Folder, and are joined to it
	Model       string   // "": not said
	Roles       []Role   // in the order ps, chief, worker, evaluator
	Command     []string // of all roles that have none of their own; nil: not said
	Env         []string // NAME=VALUE
	MaxRestarts int
}

// Role is one kind of task.
type Role struct {
	Name    string
	Count   int
	Command []string // nil: that of the job
	Env     []string // NAME=VALUE, over the job's
}

// Is reports whether a YAML file has roles. It need not be right otherwise: Read says what
// is wrong.
func Is(name string) bool {
	text, err := os.ReadFile(name)
	return err == nil && strings.Contains("\n"+string(text), "\nroles:")
}

// Read reads a file. The error names everything that is wrong in it, each with its line.
func Read(name string) (*Job, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	folder, err := filepath.Abs(filepath.Dir(name))
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", name, err)
	}
	j := &Job{Folder: folder, MaxRestarts: defaultMaxRestarts}
	if err := dataset.ReadMapping(text, name, j.members); err != nil {
		return nil, err
	}
	for i, spec := range j.Specs {
		if !filepath.IsAbs(spec) {
			j.Specs[i] = filepath.Join(folder, spec)
		}
	}
	slices.SortFunc(j.Roles, func(a, b Role) int { return slices.Index(names, a.Name) - slices.Index(names, b.Name) })
	return j, nil
}

func (j *Job) members(r *dataset.Reader) []dataset.Member {
	return []dataset.Member{
		{Name: "specs", Read: r.Texts(&j.Specs)},
		{Name: "model", Read: r.Text(&j.Model)},
		{Name: "roles", Read: func(n *yaml.Node, path string) { j.readRoles(r, n, path) }},
		{Name: "command", Read: command(r, &j.Command)},
		{Name: "env", Read: env(r, &j.Env)},
		{Name: "max_restarts", Read: dataset.Parsed(r, &j.MaxRestarts, dataset.ParseCount)},
	}
}

func (j *Job) readRoles(r *dataset.Reader, n *yaml.Node, path string) {
	var members []dataset.Member
	for _, name := range names {
		members = append(members, dataset.Member{Name: name, Read: func(n *yaml.Node, path string) {
			role := Role{Name: name, Count: 1}
			role.read(r, n, path)
			if role.Count > 0 {
				j.Roles = append(j.Roles, role)
			}
		}})
	}
	r.Mapping(n, path, members)
	if n.Kind == yaml.MappingNode && !slices.ContainsFunc(j.Roles, func(role Role) bool { return role.Name == "chief" || role.Name == "worker" }) {
		r.Fail(&yaml.Node{Line: n.Line}, path, "nothing trains", "give it a chief, as in {ps: 1, chief: 1, worker: 2, evaluator: 1}")
	}
}

// read reads a number of tasks, or a mapping with it.
func (role *Role) read(r *dataset.Reader, n *yaml.Node, path string) {
	count := dataset.Parsed(r, &role.Count, role.parseCount)
	if n.Kind != yaml.MappingNode {
		count(n, path)
		return
	}
	r.Mapping(n, path, []dataset.Member{
		{Name: "count", Read: count},
		{Name: "command", Read: command(r, &role.Command)},
		{Name: "env", Read: env(r, &role.Env)},
	})
}

func (role *Role) parseCount(text string) (int, error) {
	most := 1000
	if role.Name == "chief" || role.Name == "evaluator" {
		most = 1 // as TensorFlow has it
	}
	count, err := strconv.Atoi(text)
	if err != nil || count < 0 || count > most {
		return 0, fmt.Errorf("must be a number from 0 to %d", most)
	}
	return count, nil
}

// command reads a list, or one text whose words are the list.
func command(r *dataset.Reader, into *[]string) func(*yaml.Node, string) {
	read := r.Texts(into)
	return func(n *yaml.Node, path string) {
		read(n, path)
		if n.Kind == yaml.ScalarNode && len(*into) == 1 {
			*into = strings.Fields((*into)[0])
		}
		if len(*into) == 0 {
			r.Fail(n, path, "is empty", "as in [python, train.py]")
		}
	}
}

func env(r *dataset.Reader, into *[]string) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		if n.Kind != yaml.MappingNode {
			r.Fail(n, path, "must be a mapping of names to values", "as in {TF_CPP_MIN_LOG_LEVEL: \"2\"}")
			return
		}
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, value := n.Content[i], n.Content[i+1]
			if value.Kind != yaml.ScalarNode || strings.ContainsAny(name.Value, "=\x00") || name.Value == "" {
				r.Fail(value, path+"."+name.Value, "must be one value", "")
				continue
			}
			*into = append(*into, name.Value+"="+value.Value)
		}
	}
}
