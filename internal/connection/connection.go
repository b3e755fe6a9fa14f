// Package connection decides to which brokers, buckets (store.go) and schema registries
// (registry.go) a secret is sent. The operator registers connections by name: addresses, TLS,
// login. A spec names one. A spec with a broker's address of its own may name a secret only if
// the operator has listed that address: otherwise everybody who may apply a spec could send any
// secret of the master anywhere.
//
// It knows no kind of source: each kind says what its part of a spec reaches. Only cmd
// uses it.
package connection

import (
	"fmt"
	"net"
	"slices"
	"sync"

	"go.yaml.in/yaml/v3"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/registry"
	"github.com/headrace/headrace/internal/suggest"
	"github.com/headrace/headrace/sources"
)

// Book is what the operator has registered.
type Book struct {
	named  map[string]dataset.Part
	stores map[string]*store // of kind s3
	places map[string]*place // of schema registries
	names  []string
	listed []string // host:port that secrets of specs may be sent to

	mu         sync.Mutex
	registries map[dataset.Registry]*registry.Registry // that were opened
}

// Parse reads the mapping `connections:` of a settings file, which may be nil, and takes
// the listed addresses. Errors name the file, the connection and the field.
func Parse(n *yaml.Node, file string, listed []string) (*Book, error) {
	b := &Book{named: map[string]dataset.Part{}, stores: map[string]*store{}, places: map[string]*place{}, registries: map[dataset.Registry]*registry.Registry{}, listed: listed}
	if n == nil {
		return b, nil
	}
	if n.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: connections: must be a mapping from names to connections, as in {main: {kafka: {brokers: [kafka-1:9092]}}}", file, n.Line)
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i].Value
		if slices.Contains(b.names, name) {
			return nil, fmt.Errorf("%s:%d: connections: %s is registered twice", file, n.Content[i].Line, name)
		}
		if s, err := parseStore(n.Content[i+1], file); s != nil || err != nil {
			if err != nil {
				return nil, fmt.Errorf("connections: %s: %w", name, err)
			}
			b.stores[name], b.names = s, append(b.names, name)
			continue
		}
		if p, err := parsePlace(n.Content[i+1], file); p != nil || err != nil {
			if err != nil {
				return nil, fmt.Errorf("connections: %s: %w", name, err)
			}
			b.places[name], b.names = p, append(b.names, name)
			continue
		}
		part, err := dataset.ParseConnection(n.Content[i+1], file)
		if err != nil {
			return nil, fmt.Errorf("connections: %s: %w", name, err)
		}
		if to, ok := part.(dataset.Reaching); ok {
			if err := clear(to.Reach()); err != nil {
				return nil, fmt.Errorf("%s:%d: connections: %s: %w", file, n.Content[i].Line, name, err)
			}
		}
		b.named[name], b.names = part, append(b.names, name)
	}
	return b, nil
}

// Open opens a spec's source as the operator allows it.
func (b *Book) Open(spec *dataset.Spec, o dataset.Opening) (sources.Source, error) {
	spec, o, err := b.resolve(spec, o)
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", spec.Name, err)
	}
	o.Objects = b.Objects
	return spec.Open(o)
}

func (b *Book) resolve(spec *dataset.Spec, o dataset.Opening) (*dataset.Spec, dataset.Opening, error) {
	reach, kind := spec.ReachOf(), spec.Kind().Name
	if reach.Connection == "" {
		return spec, o, b.allows(reach)
	}
	part, ok := b.named[reach.Connection]
	if !ok {
		return spec, o, fmt.Errorf("%s.connection: no connection %s is registered here: %s; write it under connections: in the settings file of master and agents",
			kind, reach.Connection, suggest.Hint(reach.Connection, b.names, "connections"))
	}
	if part.Kind().Name != kind {
		return spec, o, fmt.Errorf("%s.connection: %s is a connection to %s", kind, reach.Connection, part.Kind().Name)
	}
	full := *spec
	full.Source = spec.Source.(dataset.Reaching).Connect(part) // it has a Reach with a connection
	o.AllowedRoots = []string{"/"}                             // the operator named the files
	return &full, o, nil
}

// allows says why the secret of a spec is not sent to the spec's own addresses.
func (b *Book) allows(r dataset.Reach) error {
	if !r.Secret {
		return nil
	}
	for _, a := range r.Addresses {
		if !slices.Contains(b.listed, a) {
			return fmt.Errorf("it names a secret for %s, and the operator has not listed that broker: "+
				"register a connection and write `connection: NAME`, or start master and agents with --allow-broker %s", a, a)
		}
	}
	return clear(r)
}

// clear refuses a secret that others in the network could read.
func clear(r dataset.Reach) error {
	if !r.ClearText {
		return nil
	}
	for _, a := range r.Addresses {
		host, _, err := net.SplitHostPort(a)
		if ip := net.ParseIP(host); err != nil || host != "localhost" && (ip == nil || !ip.IsLoopback()) {
			return fmt.Errorf("the login would go to %s in clear text: use TLS (%s), or a mechanism that does not send the secret", a, "tls: {}")
		}
	}
	return nil
}
