package connection

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"

	"go.yaml.in/yaml/v3"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/registry"
	"github.com/headrace/headrace/internal/secret"
	"github.com/headrace/headrace/internal/suggest"
	"github.com/headrace/headrace/sources"
)

// place is a connection to a schema registry: {registry: {url: https://registry:8081, ...}}.
// It names the password or token and does not hold it.
type place struct {
	URL          string `yaml:"url"`
	User         string `yaml:"user"`
	PasswordEnv  string `yaml:"password_env"`
	PasswordFile string `yaml:"password_file"`
	TokenEnv     string `yaml:"token_env"`
	TokenFile    string `yaml:"token_file"`
	CA           string `yaml:"ca"`
	Cert         string `yaml:"cert"`
	Key          string `yaml:"key"`
}

var placeFields = []string{"url", "user", "password_env", "password_file", "token_env", "token_file", "ca", "cert", "key"}

// parsePlace is nil for a connection of another kind.
func parsePlace(n *yaml.Node, file string) (*place, error) {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 || n.Content[0].Value != "registry" {
		return nil, nil
	}
	if len(n.Content) > 2 {
		return nil, fmt.Errorf("%s:%d: %s does not go with registry: a connection is of one kind: make two", file, n.Content[2].Line, n.Content[2].Value)
	}
	p, body := &place{}, n.Content[1]
	if body.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: registry: must be a mapping, as in {url: https://registry:8081}", file, body.Line)
	}
	for i := 0; i+1 < len(body.Content); i += 2 {
		if name := body.Content[i].Value; !slices.Contains(placeFields, name) {
			return nil, fmt.Errorf("%s:%d: registry.%s: no such field: %s", file, body.Content[i].Line, name, suggest.Hint(name, placeFields, "fields"))
		}
	}
	if err := body.Decode(p); err != nil {
		return nil, fmt.Errorf("%s:%d: registry: %w", file, body.Line, err)
	}
	if err := p.check(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", file, body.Line, err)
	}
	return p, nil
}

func (p *place) password() dataset.Password {
	return dataset.Password{Env: p.PasswordEnv, File: p.PasswordFile}
}

func (p *place) token() dataset.Password { return dataset.Password{Env: p.TokenEnv, File: p.TokenFile} }

func (p *place) check() error {
	hasPassword, hasToken := p.password() != dataset.Password{}, p.token() != dataset.Password{}
	switch {
	case p.URL == "":
		return fmt.Errorf("registry.url: must be given, as in https://registry:8081")
	case dataset.RegistryURL(p.URL) != "":
		return fmt.Errorf("registry.url: it %s; write it as in https://registry:8081", dataset.RegistryURL(p.URL))
	case hasPassword && hasToken:
		return fmt.Errorf("registry: give a password or a token, not both")
	case hasPassword != (p.User != ""):
		return fmt.Errorf("registry.user: user and password go together: name the password with password_env (a variable that begins with %s) or password_file", dataset.SecretPrefix)
	case p.PasswordEnv != "" && p.PasswordFile != "" || p.TokenEnv != "" && p.TokenFile != "":
		return fmt.Errorf("registry: a secret is in a variable or in a file, not in both")
	case (p.Cert == "") != (p.Key == ""):
		return fmt.Errorf("registry: cert and key go together")
	}
	if u, err := url.Parse(p.URL); err == nil && u.Scheme == "http" && (hasPassword || hasToken) && !loopback(u.Hostname()) {
		return fmt.Errorf("registry.url: the login would go to %s in clear text: use https", u.Host)
	}
	return nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (p *place) config() (registry.Config, error) {
	c, err := registry.Config{URL: p.URL, User: p.User}, error(nil)
	if p.User != "" {
		if c.Password, err = secretOf("registry.password", p.password()); err != nil {
			return c, err
		}
	}
	if (p.token() != dataset.Password{}) {
		if c.Token, err = secretOf("registry.token", p.token()); err != nil {
			return c, err
		}
	}
	var t *tls.Config
	if t, err = secret.TLS("registry", &dataset.TLS{CA: p.CA, Cert: p.Cert, Key: p.Key}); err == nil {
		c.TLS = t
	}
	return c, err
}

// secretOf reads a secret once, so that a mistake is told at once, and then whenever it is asked.
func secretOf(field string, s dataset.Password) (registry.Secret, error) {
	read := func() (string, error) { return secret.Read(field, s, []string{"/"}) } // the operator named the file
	_, err := read()
	return read, err
}

// WithSchemas returns the source for reading, with the schemas that its spec's format needs:
// those of a registry, as the operator allows it, or the one that the spec gives.
func (b *Book) WithSchemas(spec *dataset.Spec, src sources.Source, allowedRoots []string, log *slog.Logger) (sources.Source, error) {
	d := &spec.Decode
	switch {
	case d.Registry != nil:
		r, err := b.registry(d.Registry, log)
		if err != nil {
			return nil, fmt.Errorf("dataset %s: decode.registry: %w", spec.Name, err)
		}
		return registry.Reading(src, r), nil
	case d.Schema != nil:
		given, err := givenSchema(d, allowedRoots)
		if err != nil {
			return nil, fmt.Errorf("dataset %s: decode.schema: %w", spec.Name, err)
		}
		return registry.Giving(src, given), nil
	}
	return src, nil
}

// registry is the one that a spec names: one for all datasets of the process, so that each
// id is asked for once.
func (b *Book) registry(r *dataset.Registry, log *slog.Logger) (*registry.Registry, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if known := b.registries[*r]; known != nil {
		return known, nil
	}
	c := registry.Config{URL: r.URL}
	if r.Connection != "" {
		p := b.places[r.Connection]
		if p == nil {
			return nil, b.noRegistry(r.Connection)
		}
		var err error
		if c, err = p.config(); err != nil {
			return nil, fmt.Errorf("connection %s: %w", r.Connection, err)
		}
	}
	made := registry.New(c, log)
	b.registries[*r] = made
	return made, nil
}

func (b *Book) noRegistry(name string) error {
	if part, other := b.named[name]; other {
		return fmt.Errorf("connection %s is one to %s, and a schema registry is needed", name, part.Kind().Name)
	}
	if _, other := b.stores[name]; other {
		return fmt.Errorf("connection %s is one to s3, and a schema registry is needed", name)
	}
	return fmt.Errorf("no connection %s is registered here: %s; write it under connections: in the settings file of master and agents",
		name, suggest.Hint(name, b.names, "connections"))
}
