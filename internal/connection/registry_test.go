package connection

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/decode"
	"github.com/headrace/headrace/internal/registry"
	"github.com/headrace/headrace/sources"
)

const shelves = `
main: {registry: {url: "https://registry:8081", user: trainer, password_env: HEADRACE_REGISTRY}}
token: {registry: {url: "https://registry:8081", token_env: HEADRACE_REGISTRY}}
open: {registry: {url: "http://registry:8081/apis/ccompat/v7"}}
k: {kafka: {brokers: [kafka-1:9093]}}
`

func topic(t *testing.T, decoding string) *dataset.Spec {
	t.Helper()
	spec, err := dataset.Parse([]byte("name: d\nkafka: {brokers: [k:1], topic: a}\ndecode: {format: avro, "+decoding+", columns: [{name: x, path: x, dtype: int64}]}\n"), "")
	if err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestARegistryIsReachedAsTheOperatorAllows(t *testing.T) {
	t.Setenv("HEADRACE_REGISTRY", "very secret")
	b, err := book(t, shelves)
	if err != nil {
		t.Fatal(err)
	}
	var src sources.Source
	for decoding, want := range map[string]string{
		"registry: {connection: main}": "", "registry: {connection: token}": "", "registry: {connection: open}": "", `registry: {url: "http://any:1"}`: "",
		"registry: {connection: mian}": "no connection mian is registered here: did you mean main", "registry: {connection: k}": "is one to kafka",
	} {
		read, err := b.WithSchemas(topic(t, decoding), src, nil, slog.New(slog.DiscardHandler))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", decoding, err)
		}
		if err == nil && decode.SchemasOf(read) == nil {
			t.Errorf("%s: no schemas", decoding)
		}
	}
	one, _ := b.registry(&dataset.Registry{Connection: "main"}, nil)
	two, _ := b.registry(&dataset.Registry{Connection: "main"}, nil)
	if one == nil || one != two {
		t.Error("two datasets of one registry do not share its answers")
	}
	t.Setenv("HEADRACE_REGISTRY", "")
	b, _ = book(t, shelves)
	if _, err := b.WithSchemas(topic(t, "registry: {connection: main}"), src, nil, nil); err == nil || !strings.Contains(err.Error(), "HEADRACE_REGISTRY is not set here") {
		t.Errorf("got the error %v, want one with %q", err, "HEADRACE_REGISTRY is not set here")
	}
}

func TestATokenOfARegistryIsReplacedWithoutARestart(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	p := &place{URL: "https://registry:8081", TokenFile: file}
	if _, err := p.config(); err == nil || !strings.Contains(err.Error(), "registry.token_file") {
		t.Errorf("without the file the error is %v, want one with registry.token_file", err)
	}
	var c registry.Config
	for _, token := range []string{"first", "second"} {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if c.Token == nil {
			var err error
			if c, err = p.config(); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := c.Token(); err != nil || got != token {
			t.Errorf("the token is %q (%v), want %q", got, err, token)
		}
	}
}

func TestASchemaOfTheSpecIsReadFromAnAllowedRoot(t *testing.T) {
	dir, b := t.TempDir(), &Book{}
	file := filepath.Join(dir, "click.avsc")
	if err := os.WriteFile(file, []byte(`{"type":"record","name":"A","fields":[{"name":"x","type":"long"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/etc/hostname", filepath.Join(dir, "out.avsc")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ decoding, root, want string }{
		{"schema: {file: " + file + "}", dir, ""},
		{"schema: {file: " + file + "}", "/var/empty", "is in no folder that is allowed here"},
		{"schema: {file: " + dir + "/out.avsc}", dir, "escapes"},
		{"schema: {file: " + dir + "/none.avsc}", dir, "no such file"},
		{`schema: {inline: '"long"'}`, "/var/empty", ""},
		{"schema: {inline: nonsense}", "/var/empty", "decode.schema: the Avro schema is not JSON"},
	} {
		_, err := b.WithSchemas(topic(t, c.decoding), nil, []string{c.root}, nil)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.decoding, err)
		}
	}
}

func TestMistakesInConnectionsToARegistryAreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"x: {registry: {}}":                                                 "registry.url: must be given",
		"x: {registry: {ulr: a}}":                                           "registry.ulr: no such field: did you mean url",
		"x: {registry: {url: registry}}":                                    "is no address of a registry",
		`x: {registry: {url: "https://u:p@r:1"}}`:                           "holds a login",
		`x: {registry: {url: "https://r:1", user: a}}`:                      "user and password go together",
		`x: {registry: {url: "https://r:1", token_env: A, token_file: /b}}`: "not in both",
		`x: {registry: {url: "http://r:1", token_env: HEADRACE_A}}`:         "in clear text: use https",
		`x: {registry: {url: "https://r:1", cert: /c}}`:                     "cert and key go together",
		`x: {registry: {url: "https://r:1"}, kafka: {brokers: [a:1]}}`:      "a connection is of one kind",
	} {
		if _, err := book(t, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got the error %v, want one with %q", text, err, want)
		}
	}
}
