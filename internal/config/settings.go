package config

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headrace/headrace/internal/access"
	"github.com/headrace/headrace/internal/link"
)

// Config is every setting, validated.
type Config struct {
	Job        string
	Model      string // shared | replicated | private
	State      string // folder of the master's store
	Master     string // where tools and agents find the master; "" = the state folder says
	Listen     string
	HTTP       string
	Metrics    string   // of the agent; "": none
	Name       string   // of the agent
	Socket     string   // of the agent
	AllowRoots []string // folders that files may be read from; absolute

	Landing         string     // s3://bucket/prefix where pushed records are stored; "": the state folder
	LandingAs       string     // the connection for it; "": the credentials of the environment
	AllowBrokers    []string   // host:port that the secrets of specs may be sent to
	Connections     *yaml.Node // of the settings file; nil: none
	ConnectionsFile string     // for errors

	SessionTTL       time.Duration
	LostAfter        time.Duration // 0: SessionTTL
	Buffer           int64         // bytes an agent may hold decoded and not delivered
	Replicas         int           // copies of each checkpoint in memory that an agent makes on other nodes
	PeerListen       string        // where an agent listens for those of other nodes; "": nowhere
	ReplicaBandwidth int64         // bytes per second of copying
	TLS              link.TLS
	Token            string         // proven to the master; "": the one of TokenFile, else of State
	TokenFile        string         // a master accepts its tokens instead of those of State
	Roles            []access.Entry // a master's: names of certificates
	RoleTokens       []access.Entry // and files of tokens
	LogLevel         slog.Level
	LogFormat        string // text | json
	Output           string // table | json | yaml

	from map[string]origin
}

type setting struct {
	key, short string
	def        string
	list       bool // given several times, or a list in the file, or split at ':' in the environment
	secret     bool // an error does not show the value
	usage      string
	set        func(c *Config, v []string) error
}

// settings in the order that help and docs/CLI.md show them.
var settings = []setting{
	{key: "job", def: "default", usage: "name of the job: one master, one store", set: setJob},
	{key: "state", usage: "folder of the master's store (default $XDG_STATE_HOME/headrace/<job>, else ~/.local/state/headrace/<job>)",
		set: func(c *Config, v []string) (err error) { c.State, err = absolute(v[0]); return err }},
	{key: "master", usage: "address of the master (default: what <state>/master.addr says, else " + link.DefaultMaster + ")",
		set: func(c *Config, v []string) error {
			c.Master = v[0]
			if v[0] == "" {
				return nil
			}
			return link.CheckAddress(v[0], false)
		}},
	{key: "model", def: "shared", usage: "where the model lives: shared, replicated or private",
		set: func(c *Config, v []string) error {
			c.Model = v[0]
			return oneOf(v[0], "shared", "replicated", "private")
		}},
	{key: "listen", def: link.DefaultMaster, usage: "address of the master's gRPC port; port 0: any free one",
		set: func(c *Config, v []string) error { c.Listen = v[0]; return link.CheckAddress(v[0], true) }},
	{key: "http", def: link.DefaultHTTP, usage: "address of /metrics, /healthz, /readyz and pprof; port 0: any free one, off: none",
		set: func(c *Config, v []string) error {
			if c.HTTP = v[0]; v[0] == "off" {
				c.HTTP = ""
				return nil
			}
			return link.CheckAddress(v[0], true)
		}},
	{key: "metrics", def: "off", usage: "address of the agent's own /metrics and /healthz; port 0: any free one, off: none",
		set: func(c *Config, v []string) error {
			if c.Metrics = v[0]; v[0] == "off" {
				c.Metrics = ""
				return nil
			}
			return link.CheckAddress(v[0], true)
		}},
	{key: "session_ttl", def: "5s", usage: "how long an agent that sends nothing keeps its leases",
		set: func(c *Config, v []string) (err error) {
			c.SessionTTL, err = duration(v[0], 10*time.Minute)
			return err
		}},
	{key: "lost_after", usage: "model shared: how long an agent may be silent before the rows in its trainers' hands go to others; at least the session's TTL (default)",
		set: func(c *Config, v []string) (err error) {
			if v[0] != "" {
				c.LostAfter, err = duration(v[0], time.Hour)
			}
			return err
		}},
	{key: "name", usage: "name of the agent, unique in the job and the same after a restart (default: the host's name)",
		set: func(c *Config, v []string) error {
			if c.Name = v[0]; v[0] == "" {
				c.Name, _ = os.Hostname()
			}
			return name(c.Name)
		}},
	{key: "socket", usage: "the agent's Unix socket (default $XDG_RUNTIME_DIR/headrace/<job>.sock, else /tmp/headrace-<uid>/<job>.sock)",
		set: func(c *Config, v []string) error {
			c.Socket = v[0]
			if v[0] == "" {
				return nil // the job's default, checked when the job is known
			}
			return link.CheckSocketPath(v[0])
		}},
	{key: "allow_root", list: true, usage: "folder that files may be read from; repeat for more (default for up and run: the current folder and the roots of -f)",
		set: setRoots},
	{key: "allow_broker", list: true, usage: "HOST:PORT of a broker that the login of a spec may be sent to; repeat for more (default for up and run: those of -f)",
		set: func(c *Config, v []string) error {
			c.AllowBrokers = nil
			for _, addr := range v {
				if addr == "" {
					continue
				}
				if err := link.CheckAddress(addr, false); err != nil {
					return err
				}
				c.AllowBrokers = append(c.AllowBrokers, addr)
			}
			return nil
		}},
	{key: "landing_storage", usage: "s3://BUCKET/PREFIX where pushed records are stored (default: the master's state folder)",
		set: func(c *Config, v []string) error {
			if v[0] != "" && !strings.HasPrefix(v[0], "s3://") {
				return errors.New("it must be s3://BUCKET/PREFIX, or nothing for the master's state folder")
			}
			c.Landing = strings.TrimRight(v[0], "/")
			return nil
		}},
	{key: "landing_connection", usage: "name of the connection for landing_storage (default: the credentials of the environment)",
		set: func(c *Config, v []string) error { c.LandingAs = v[0]; return nil }},
	{key: "buffer", def: "512MiB", usage: "bytes an agent may hold decoded and not yet taken by trainers",
		set: func(c *Config, v []string) (err error) {
			c.Buffer, err = size(v[0], 1<<20)
			return err
		}},
	{key: "replicas", def: "0", usage: "copies of each checkpoint in memory that the agent makes on another node, in the background: 0 or 1",
		set: func(c *Config, v []string) error {
			c.Replicas = 0
			if v[0] == "1" {
				c.Replicas = 1
			}
			return oneOf(v[0], "0", "1")
		}},
	{key: "peer_listen", usage: "address where the agent listens for the agents of other nodes, as they reach it (default with replicas: 127.0.0.1:0; without: none)",
		set: func(c *Config, v []string) error {
			if c.PeerListen = v[0]; v[0] == "" {
				return nil
			}
			if host, _, err := net.SplitHostPort(v[0]); err == nil {
				if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
					return errors.New("other agents are told this address: name the one by which they reach this node, as in 10.0.0.5:7072")
				}
			}
			return link.CheckAddress(v[0], true)
		}},
	{key: "replica_bandwidth", def: "256MiB", usage: "bytes per second that the agent sends of checkpoints in memory to another node",
		set: func(c *Config, v []string) (err error) {
			c.ReplicaBandwidth, err = size(v[0], 64<<10)
			return err
		}},
	{key: "tls_cert", usage: "certificate (PEM) that this process shows; needed off loopback",
		set: func(c *Config, v []string) error { c.TLS.Cert = v[0]; return readable(v[0]) }},
	{key: "tls_key", usage: "its private key (PEM)",
		set: func(c *Config, v []string) error { c.TLS.Key = v[0]; return readable(v[0]) }},
	{key: "tls_ca", usage: "authority (PEM) that has signed the other side's certificate",
		set: func(c *Config, v []string) error { c.TLS.CA = v[0]; return readable(v[0]) }},
	{key: "token_file", usage: "file of the token that this process proves to the master, and that a master accepts (default <state>/token, which a master makes)",
		set: func(c *Config, v []string) (err error) {
			if c.TokenFile, err = absolute(v[0]); err != nil || v[0] == "" {
				return err
			}
			_, err = access.Lines(c.TokenFile)
			return err
		}},
	{key: "token", secret: true, usage: "the token itself, in place of token_file",
		set: func(c *Config, v []string) error {
			if c.Token = v[0]; v[0] == "" {
				return nil
			}
			return access.CheckToken(v[0])
		}},
	{key: "role", list: true, usage: "ROLE=NAME: certificates of this name have this role (viewer, agent, operator, pusher); * stands for part of a name; repeat for more",
		set: func(c *Config, v []string) (err error) { c.Roles, err = entries(v); return err }},
	{key: "role_token", list: true, usage: "ROLE=FILE: the tokens of this file have this role; repeat for more",
		set: func(c *Config, v []string) (err error) { c.RoleTokens, err = entries(v); return err }},
	{key: "log_level", def: "info", usage: "debug, info, warn or error",
		set: func(c *Config, v []string) error {
			if err := oneOf(v[0], "debug", "info", "warn", "error"); err != nil {
				return err
			}
			return c.LogLevel.UnmarshalText([]byte(v[0]))
		}},
	{key: "log_format", def: "text", usage: "text or json",
		set: func(c *Config, v []string) error { c.LogFormat = v[0]; return oneOf(v[0], "text", "json") }},
	{key: "output", short: "o", def: "table", usage: "table, json or yaml",
		set: func(c *Config, v []string) error { c.Output = v[0]; return oneOf(v[0], "table", "json", "yaml") }},
}

func (s *setting) flag() string { return strings.ReplaceAll(s.key, "_", "-") }

func (s *setting) env() string {
	if s.key == "socket" {
		return "HEADRACE_AGENT"
	}
	return "HEADRACE_" + strings.ToUpper(s.key)
}

var nameRule = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// LongestName is how many characters the name of a job or an agent may have.
const LongestName = 63

func name(v string) error {
	if !nameRule.MatchString(v) {
		return errors.New("not a name: use letters, digits, dot, dash and underscore, at most 63, and a letter or digit first")
	}
	return nil
}

func entries(v []string) (all []access.Entry, err error) {
	for _, text := range v {
		if text == "" {
			continue
		}
		e, err := access.ParseEntry(text)
		if err != nil {
			return nil, err
		}
		all = append(all, e)
	}
	return all, nil
}

func setJob(c *Config, v []string) error { c.Job = v[0]; return name(v[0]) }

func setRoots(c *Config, v []string) error {
	c.AllowRoots = nil
	for i, r := range v {
		if r == "s3" && i+1 < len(v) && strings.HasPrefix(v[i+1], "//") { // a variable's list, cut at colons
			v[i+1] = "s3:" + v[i+1]
			continue
		}
		if r == "" {
			continue
		}
		if strings.HasPrefix(r, "s3://") {
			c.AllowRoots = append(c.AllowRoots, strings.TrimRight(r, "/"))
			continue
		}
		abs, err := absolute(r)
		if err != nil {
			return err
		}
		st, err := os.Stat(abs)
		if err != nil {
			return fmt.Errorf("no such folder: %w", err)
		}
		if !st.IsDir() {
			return fmt.Errorf("%s is a file; a folder is needed", abs)
		}
		c.AllowRoots = append(c.AllowRoots, abs)
	}
	return nil
}

func absolute(v string) (string, error) {
	if v == "" {
		return "", nil
	}
	if rest, ok := strings.CutPrefix(v, "~/"); ok {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		v = filepath.Join(home, rest)
	}
	return filepath.Abs(v)
}

func readable(v string) error {
	if v == "" {
		return nil
	}
	f, err := os.Open(v)
	if err != nil {
		return err
	}
	return f.Close()
}

func oneOf(v string, legal ...string) error {
	if !slices.Contains(legal, v) {
		return errors.New("not one of " + strings.Join(legal, ", "))
	}
	return nil
}

// leastTTL: agents renew their sessions several times in a TTL.
const leastTTL = 500 * time.Millisecond

func duration(v string, most time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil {
		return 0, errors.New("not a duration, as in 500ms, 5s or 10m")
	}
	if d < leastTTL || d > most {
		return 0, fmt.Errorf("must be from %v to %v", leastTTL, most)
	}
	return d, nil
}

func size(v string, low int64) (int64, error) {
	number, unit := v, int64(1)
	for suffix, u := range map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30} {
		if n, ok := strings.CutSuffix(v, suffix); ok {
			number, unit = n, u
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
	if err != nil || n > (1<<62)/unit {
		return 0, errors.New("not a size, as in 1048576, 512KiB, 64MiB or 1GiB")
	}
	if n*unit < low {
		return 0, fmt.Errorf("must be at least %d bytes", low)
	}
	return n * unit, nil
}
