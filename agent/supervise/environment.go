package supervise

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
)

// environment of one worker: torchrun's names and ours over cfg.Env.
func (g *group) environment(local, attempt int) []string {
	c := &g.cfg
	t := &g.tasks[local]
	set := map[string]string{"HEADRACE_ATTEMPT": strconv.Itoa(attempt)}
	if t.rank >= 0 {
		maps.Copy(set, g.torchrun(t))
	}
	if t.role != "" {
		set["TF_CONFIG"] = g.cluster.config(t)
	}
	if t.role == PS { // it need not end by itself
		set["HEADRACE_ENDS_SERVERS"] = "1"
	}
	for _, kv := range t.env {
		name, value, _ := strings.Cut(kv, "=")
		set[name] = value
	}
	if g.notes != "" {
		set[noteVariable] = g.note(local)
	}
	if c.Socket != "" {
		set["HEADRACE_AGENT"] = c.Socket
	}
	if c.Job != "" {
		set["HEADRACE_JOB"] = c.Job
	}
	if attempt == 0 {
		for _, kv := range c.FirstEnv {
			name, value, _ := strings.Cut(kv, "=")
			set[name] = value
		}
	}
	env := make([]string, 0, len(c.Env)+len(set)+1)
	buffered := true
	for _, kv := range c.Env {
		name, _, _ := strings.Cut(kv, "=")
		if _, ours := set[name]; !ours {
			env = append(env, kv)
		}
		buffered = buffered && name != "PYTHONUNBUFFERED"
	}
	for _, name := range slices.Sorted(maps.Keys(set)) {
		env = append(env, name+"="+set[name])
	}
	if buffered { // into a pipe Python would hold lines back for kilobytes
		env = append(env, "PYTHONUNBUFFERED=1")
	}
	return env
}

// torchrun gives the variables of a task that trains, by torchrun's names.
func (g *group) torchrun(t *task) map[string]string {
	c, trainers := &g.cfg, 0
	for i := range g.tasks {
		if g.tasks[i].rank >= 0 {
			trainers++
		}
	}
	return map[string]string{
		"RANK":             strconv.Itoa(t.rank),
		"LOCAL_RANK":       strconv.Itoa(t.rank - c.NodeRank*c.NProcPerNode),
		"GROUP_RANK":       strconv.Itoa(c.NodeRank),
		"WORLD_SIZE":       strconv.Itoa(c.NNodes * trainers),
		"LOCAL_WORLD_SIZE": strconv.Itoa(trainers),
		"MASTER_ADDR":      c.MasterAddr,
		"MASTER_PORT":      strconv.Itoa(g.port),
	}
}

// Ports of tasks. They lie below those that the system gives to outgoing connections (32768
// and up, mostly): a task listens seconds after its port was chosen, and nobody may take the
// port until then.
const firstPort, lastPort = 20_000, 32_000

// freePort is a port of 127.0.0.1 on which nobody listens.
func freePort() (int, error) {
	var err error
	for range 200 {
		port := firstPort + rand.IntN(lastPort-firstPort)
		var l net.Listener
		if l, err = net.Listen("tcp", local(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, fmt.Errorf("no free port on 127.0.0.1 from %d to %d: %w", firstPort, lastPort, err)
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
