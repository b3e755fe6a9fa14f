package supervise

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

// Names of roles, as TF_CONFIG has them.
const (
	PS        = "ps"
	Chief     = "chief"
	Worker    = "worker"
	Evaluator = "evaluator"
)

// Role is one kind of task of a TensorFlow cluster on this machine. Each task gets its
// TF_CONFIG, with free ports of 127.0.0.1. A chief and workers train and have ranks: the
// chief is 0, worker i is i + 1.
type Role struct {
	Name  string   // PS, Chief, Worker or Evaluator
	Count int      // 1 or more
	Cmd   []string // default: Config.Cmd
	Env   []string // over Config.Env
}

// task is what one process of the group does.
type task struct {
	local   int
	name    string // "rank 2", "worker 1"
	prefix  string // of its lines
	rank    int    // -1: it trains nothing
	role    string // "": the ranks are all alike
	index   int    // in its role
	command []string
	env     []string
}

func tasksOf(roles []Role) (n int) {
	for _, r := range roles {
		n += r.Count
	}
	return n
}

func (c *Config) makeTasks() []task {
	var out []task
	if len(c.Roles) == 0 {
		for local := range c.NProcPerNode {
			rank := c.NodeRank*c.NProcPerNode + local
			name := strconv.Itoa(rank)
			out = append(out, task{local: local, name: "rank " + name, prefix: name, rank: rank, command: c.Cmd})
		}
		return out
	}
	ranks := map[string]int{Chief: 0, Worker: 0} // the next one
	for _, r := range c.Roles {
		if r.Name == Chief {
			ranks[Worker] = r.Count
		}
	}
	for _, r := range c.Roles {
		for i := range r.Count {
			t := task{local: len(out), name: r.Name, rank: -1, role: r.Name, index: i, command: c.Cmd, env: r.Env}
			if r.Name == PS || r.Name == Worker {
				t.name = fmt.Sprintf("%s %d", r.Name, i)
			}
			if first, trains := ranks[r.Name]; trains {
				t.rank = first + i
			}
			if len(r.Cmd) > 0 {
				t.command = r.Cmd
			}
			t.prefix = t.name
			out = append(out, t)
		}
	}
	return out
}

// makeCluster chooses the addresses of the tasks that talk to each other.
func (g *group) makeCluster() error {
	g.cluster.hosts = map[string][]string{}
	for i := range g.tasks {
		role := g.tasks[i].role
		if role == "" || role == Evaluator {
			continue
		}
		address, err := freeAddress(g.cluster.hosts)
		if err != nil {
			return fmt.Errorf("run: a port for %s: %w", g.tasks[i].name, err)
		}
		g.cluster.hosts[role] = append(g.cluster.hosts[role], address)
	}
	return nil
}

// freeAddress gives an address that no other task has.
func freeAddress(taken map[string][]string) (string, error) {
	for {
		port, err := freePort()
		if err != nil {
			return "", err
		}
		address := local(port)
		if !slices.ContainsFunc([]string{PS, Chief, Worker}, func(role string) bool { return slices.Contains(taken[role], address) }) {
			return address, nil
		}
	}
}

// config is the TF_CONFIG of a task.
func (c *cluster) config(t *task) string {
	type one struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
	}
	text, err := json.Marshal(struct {
		Cluster map[string][]string `json:"cluster"`
		Task    one                 `json:"task"`
	}{c.hosts, one{t.role, t.index}})
	if err != nil {
		panic(err) // strings and numbers
	}
	return string(text)
}
