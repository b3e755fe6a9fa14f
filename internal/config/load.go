package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/headrace/headrace/internal/access"
	"github.com/headrace/headrace/internal/link"
	"github.com/headrace/headrace/internal/suggest"
)

// DefaultFile is read when it is there and --config says nothing.
const DefaultFile = "headrace.yaml"

// origin says where a value came from, for people; "" is the default.
type origin string

// From says where the value of a setting came from ("--master",
// "HEADRACE_MASTER", "headrace.yaml:3"), or "" for the default.
func (c *Config) From(key string) string { return string(c.from[key]) }

// Target says where to dial the master.
func (c *Config) Target() link.Target { return c.TargetAt(c.Master) }

// TargetAt is Target for a master whose address is known.
func (c *Config) TargetAt(addr string) link.Target {
	return link.Target{Address: addr, State: c.State, Token: c.Token, TokenFile: c.TokenFile}
}

// Book is the callers that a master or an agent accepts.
func (c *Config) Book() *access.Book {
	b := &access.Book{Token: c.Token, Files: c.RoleTokens, Names: c.Roles}
	if c.TokenFile != "" {
		b.Files = append([]access.Entry{{Roles: access.Owner, Value: c.TokenFile}}, b.Files...)
	} else if c.Token == "" {
		b.State = c.State
	}
	return b
}

// AddFlags registers the flags of the named settings; defaults, if any, are the
// verb's own (see Places). It panics on an unknown setting, which is a mistake in
// the program.
func AddFlags(fs *pflag.FlagSet, defaults map[string]string, keys ...string) {
	for _, key := range keys {
		s := byKey(key)
		if s == nil {
			panic("config: no setting " + key)
		}
		usage := s.usage
		if d := cmp.Or(defaults[key], s.def); d != "" && !s.list {
			usage += " (default " + d + ")"
		}
		if s.list {
			fs.StringArrayP(s.flag(), s.short, nil, usage)
		} else {
			fs.StringP(s.flag(), s.short, "", usage)
		}
	}
}

// Places is where values come from.
type Places struct {
	Flags    *pflag.FlagSet
	Env      func(string) (string, bool) // os.LookupEnv
	Environ  []string                    // os.Environ(): names that are nearly ours are mistakes
	File     string                      // --config; "" means DefaultFile if it is there
	Defaults map[string]string           // of this verb, before the table's own
}

// Load gathers and validates. It returns every mistake, joined.
func Load(p Places) (*Config, error) {
	file, err := readFile(p.File)
	if err != nil {
		return nil, err
	}
	c := &Config{from: map[string]origin{}}
	errs := misspelt(p.Environ)
	for i := range settings {
		s := &settings[i]
		v, from := p.value(s, file)
		c.from[s.key] = origin(from)
		if err := s.set(c, v); err != nil {
			if from == "" {
				from = "default"
			}
			if s.secret {
				errs = append(errs, fmt.Errorf("%s: %s: %w", from, s.key, err))
				continue
			}
			errs = append(errs, fmt.Errorf("%s: %s: %q: %w", from, s.key, strings.Join(v, ":"), err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	c.Connections, c.ConnectionsFile = file[connectionsKey].node, file[connectionsKey].path
	return c, c.complete()
}

// trainersRead are variables that the Python package reads and that are no settings.
var trainersRead = []string{"RANK", "WORLD_SIZE", "LOCAL_RANK", "ATTEMPT", "RESUME", "RUN", "ENDED_BY", "BIN", "PYTHON", "SEED", "CACHE", "MEMORY_DIR", "SHARED_FRAMES"}

// misspelt names variables that are not ours and look like one of ours: their user
// believes that they count.
func misspelt(environ []string) (errs []error) {
	names := slices.Clone(trainersRead)
	for i := range settings {
		names = append(names, strings.TrimPrefix(settings[i].env(), "HEADRACE_"))
	}
	for _, kv := range environ {
		variable, _, _ := strings.Cut(kv, "=")
		name, ours := strings.CutPrefix(variable, "HEADRACE_")
		if !ours || slices.Contains(names, name) {
			continue
		}
		if name == "SOCKET" { // the one setting whose variable is not named after it
			errs = append(errs, fmt.Errorf("%s is no variable of headrace; did you mean HEADRACE_AGENT?", variable))
			continue
		}
		if near := suggest.Closest(name, names); near != "" && len(name) > 2 {
			errs = append(errs, fmt.Errorf("%s is no variable of headrace; did you mean HEADRACE_%s?", variable, near))
		}
	}
	return errs
}

// complete fills in settings that follow from others.
func (c *Config) complete() error {
	if c.State == "" {
		base := os.Getenv("XDG_STATE_HOME")
		if base == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return fmt.Errorf("state: no folder to keep it in: %w; give --state", err)
			}
			base = filepath.Join(home, ".local", "state")
		}
		c.State = filepath.Join(base, "headrace", c.Job)
	}
	if c.Socket == "" {
		c.Socket = link.SocketPath(c.Job)
		if err := link.CheckSocketPath(c.Socket); err != nil {
			return fmt.Errorf("default: socket: %w", err)
		}
	}
	abs, err := filepath.Abs(c.Socket)
	if err != nil {
		return err
	}
	c.Socket = abs
	return c.TLS.Check()
}

func (p *Places) value(s *setting, file map[string]fileValue) (v []string, from string) {
	if f := p.Flags; f != nil {
		if fl := f.Lookup(s.flag()); fl != nil && fl.Changed {
			if s.list {
				all, _ := f.GetStringArray(s.flag())
				return all, "--" + s.flag()
			}
			return []string{fl.Value.String()}, "--" + s.flag()
		}
	}
	if p.Env != nil {
		if e, ok := p.Env(s.env()); ok && e != "" {
			if s.list {
				return filepath.SplitList(e), s.env()
			}
			return []string{e}, s.env()
		}
	}
	if fv, ok := file[s.key]; ok {
		return fv.values, fv.where
	}
	if d, ok := p.Defaults[s.key]; ok {
		return []string{d}, ""
	}
	return []string{s.def}, ""
}

func byKey(key string) *setting {
	for i := range settings {
		if settings[i].key == key {
			return &settings[i]
		}
	}
	return nil
}
