package config

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func load(t *testing.T, yaml string, env map[string]string, args ...string) (*Config, error) {
	t.Helper()
	t.Setenv("XDG_STATE_HOME", "/state")
	t.Setenv("XDG_RUNTIME_DIR", "/run/u")
	t.Setenv("HEADRACE_AGENT", "")
	file := filepath.Join(t.TempDir(), "c.yaml")
	if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
		t.Fatal(err)
	}
	fs := pflag.NewFlagSet("t", pflag.ContinueOnError)
	AddFlags(fs, nil, keys()...)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	c, err := Load(Places{Flags: fs, File: file, Env: func(k string) (string, bool) { v, ok := env[k]; return v, ok }})
	if err != nil {
		err = errorWithout(err, filepath.Dir(file)+"/")
	}
	return c, err
}

type plain string

func (p plain) Error() string { return string(p) }

func errorWithout(err error, s string) error { return plain(strings.ReplaceAll(err.Error(), s, "")) }

func TestDefaults(t *testing.T) {
	c, err := load(t, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	if c.Job != "default" || c.Model != "shared" || c.Listen != "127.0.0.1:7070" || c.SessionTTL != 5*time.Second ||
		c.State != "/state/headrace/default" || c.Socket != "/run/u/headrace/default.sock" || c.Buffer != 512<<20 ||
		c.LogLevel != slog.LevelInfo || c.Output != "table" || c.From("job") != "" {
		t.Errorf("the defaults are %+v", c)
	}
}

func TestFlagsGoBeforeEnvironmentBeforeFile(t *testing.T) {
	yaml := "# settings\njob: from-file\nsession_ttl: 9s\nmaster: 10.0.0.1:1\n"
	env := map[string]string{"HEADRACE_SESSION_TTL": "8s", "HEADRACE_MASTER": "10.0.0.2:2"}
	c, err := load(t, yaml, env, "--master", "10.0.0.3:3")
	if err != nil {
		t.Fatal(err)
	}
	if c.Job != "from-file" || c.SessionTTL != 8*time.Second || c.Master != "10.0.0.3:3" {
		t.Errorf("a flag must win over a variable, and that over the file: %+v", c)
	}
	if !strings.HasSuffix(c.From("job"), "c.yaml:2") || c.From("session_ttl") != "HEADRACE_SESSION_TTL" || c.From("master") != "--master" {
		t.Errorf("the origins of the values are %v", c.from)
	}
}

func TestAnEmptyVariableIsNotSet(t *testing.T) {
	c, err := load(t, "job: a\n", map[string]string{"HEADRACE_JOB": ""})
	if err != nil || c.Job != "a" {
		t.Fatal(c, err)
	}
}

func TestRootsComeAsFlagsAListOrAPathList(t *testing.T) {
	a, b := t.TempDir(), t.TempDir()
	want := []string{a, b}
	for name, try := range map[string]func() (*Config, error){
		"flags": func() (*Config, error) { return load(t, "", nil, "--allow-root", a, "--allow-root", b) },
		"env":   func() (*Config, error) { return load(t, "", map[string]string{"HEADRACE_ALLOW_ROOT": a + ":" + b}) },
		"file":  func() (*Config, error) { return load(t, "allow_root: ["+a+", "+b+"]\n", nil) },
	} {
		c, err := try()
		if err != nil {
			t.Fatal(name, err)
		}
		if !slices.Equal(c.AllowRoots, want) {
			t.Error(name, c.AllowRoots)
		}
	}
}

func TestMistakesNamePlaceSettingValueAndReason(t *testing.T) {
	long := strings.Repeat("x", 120)
	for _, tc := range []struct {
		name, yaml string
		env        map[string]string
		args       []string
		want       string
	}{
		{name: "level in the file", yaml: "job: a\nlog_level: loud\n",
			want: `c.yaml:2: log_level: "loud": not one of debug, info, warn, error`},
		{name: "in the environment", env: map[string]string{"HEADRACE_SESSION_TTL": "5"},
			want: `HEADRACE_SESSION_TTL: session_ttl: "5": not a duration, as in 500ms, 5s or 10m`},
		{name: "out of range", args: []string{"--session-ttl", "1ms"},
			want: `--session-ttl: session_ttl: "1ms": must be from 500ms to 10m0s`},
		{name: "flag", args: []string{"--output", "xml"}, want: `--output: output: "xml": not one of table, json, yaml`},
		{name: "address", args: []string{"--listen", "7070"},
			want: `--listen: listen: "7070": "7070" is not host:port, as in 127.0.0.1:7070`},
		{name: "port", args: []string{"--master", "a:99999"},
			want: `--master: master: "a:99999": port "99999" of "a:99999" is not a number from 0 to 65535`},
		{name: "unknown with a guess", yaml: "\nsesion_ttl: 5s\n",
			want: "c.yaml:2: sesion_ttl: no such setting; did you mean session_ttl?"},
		{name: "twice", yaml: "job: a\njob: b\n", want: "c.yaml:2: job: given twice; first at c.yaml:1"},
		{name: "connections twice", yaml: "connections: {}\nconnections: {}\n", want: "c.yaml:2: connections: given twice; first at c.yaml:1"},
		{name: "null is no text", yaml: "job: null\n",
			want: `c.yaml:1: job: "": not a name: use letters, digits, dot, dash and underscore, at most 63, and a letter or digit first`},
		{name: "shape", yaml: "job: [a]\n", want: "c.yaml:1: job: one plain value is needed"},
		{name: "not a mapping", yaml: "- a\n", want: "c.yaml:1: settings are lines of `name: value`"},
		{name: "syntax", yaml: "job: [\n", want: "c.yaml: line 1: did not find expected node content"},
		{name: "second document", yaml: "job: a\n---\njob: b\n", want: "c.yaml: a second document after ---; settings are one document"},
		{name: "job", args: []string{"--job", "../x"},
			want: `--job: job: "../x": not a name: use letters, digits, dot, dash and underscore, at most 63, and a letter or digit first`},
		{name: "size", args: []string{"--buffer", "1GB"}, want: `--buffer: buffer: "1GB": not a size, as in 1048576, 512KiB, 64MiB or 1GiB`},
		{name: "socket too long", args: []string{"--socket", "/" + long},
			want: `--socket: socket: "/` + long + `": /` + long + ` has 121 bytes; Linux allows 107 for a socket: choose a shorter path, as in /tmp/headrace.sock`},
		{name: "half of TLS", args: []string{"--tls-cert", "/dev/null"},
			want: "TLS needs all three of --tls-cert, --tls-key and --tls-ca: both sides prove who they are"},
		{name: "missing root", args: []string{"--allow-root", "/no/such"},
			want: `--allow-root: allow_root: "/no/such": no such folder: stat /no/such: no such file or directory`},
		{name: "all at once", args: []string{"--output", "xml", "--log-format", "xml"},
			want: "--log-format: log_format: \"xml\": not one of text, json\n--output: output: \"xml\": not one of table, json, yaml"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := load(t, tc.yaml, tc.env, tc.args...)
			if err == nil {
				t.Fatal("accepted")
			}
			if err.Error() != tc.want {
				t.Errorf("\n got %s\nwant %s", err, tc.want)
			}
		})
	}
}

func TestANamedFileMustBeThere(t *testing.T) {
	_, err := Load(Places{File: "/no/such.yaml"})
	if err == nil || err.Error() != "--config: open /no/such.yaml: no such file or directory" {
		t.Fatal(err)
	}
}

func TestTheDefaultFileIsReadWhenItIsThere(t *testing.T) {
	t.Chdir(t.TempDir())
	if c, err := Load(Places{}); err != nil || c.Job != "default" {
		t.Fatal(c, err)
	}
	if err := os.WriteFile(DefaultFile, []byte("job: here\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := Load(Places{}); err != nil || c.Job != "here" || c.From("job") != "headrace.yaml:1" {
		t.Fatal(c, err)
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte("job: a\nallow_root: [/a, /b]\n"))
	f.Add([]byte("a: &x [1]\njob: *x\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseFile("c.yaml", b) // never panics
	})
}
