package dataset

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Reaching is implemented by parts whose records lie at a broker: they say how it is
// reached, so that the operator can decide to which brokers a secret is sent.
type Reaching interface {
	Part
	Reach() Reach
	// Connect is the part with the fields of a connection (Kind.Connects) taken from
	// another part of the same kind.
	Connect(from Part) Part
}

// Reach is how a part's broker is reached.
type Reach struct {
	Connection string   // name of the operator's connection; "": the part says it itself
	Addresses  []string // host:port of all that a secret may be sent to
	Secret     bool     // it names a password, a token or a key
	ClearText  bool     // its secret would be sent as it is, without TLS
}

// ReachOf is that of a spec's part; nothing for one that lies at no broker.
func (s *Spec) ReachOf() Reach {
	if p, ok := s.Source.(Reaching); ok {
		return p.Reach()
	}
	return Reach{}
}

// ParseConnection reads the operator's connection: a mapping with the name of one kind and
// with those of its fields that say how a broker is reached.
func ParseConnection(n *yaml.Node, filename string) (Part, error) {
	r := &Reader{file: filename, lines: map[string]int{}}
	var part Part
	var kind Kind
	var members []Member
	for _, k := range kinds {
		if len(k.Connects) == 0 {
			continue
		}
		members = append(members, Member{k.Name, func(n *yaml.Node, path string) {
			if part != nil {
				r.Fail(n, path, "does not go with "+kind.Name+": a connection is of one kind", "make two")
				return
			}
			part, kind = k.New(), k
			r.Mapping(n, path, slices.DeleteFunc(part.Members(r), func(m Member) bool { return !slices.Contains(k.Connects, m.Name) }))
		}})
	}
	r.Mapping(deref(n), "", members)
	if len(r.errs) == 0 && part == nil {
		r.Fail(n, "", "names no kind of broker", "as in {kafka: {brokers: [kafka-1:9092]}}")
	}
	if len(r.errs) > 0 {
		return nil, r.errs
	}
	c := &Check{file: filename, lines: r.lines}
	part.Check(c, &Spec{Source: part})
	if errs := slices.DeleteFunc(c.errs, func(e *SpecError) bool { return !kind.connects(e.Field) }); len(errs) > 0 {
		return nil, errs
	}
	return part, nil
}

// connects reports whether a field ("kafka.tls.ca") says how a broker is reached.
func (k Kind) connects(field string) bool {
	rest, ok := strings.CutPrefix(field, k.Name+".")
	name := rest
	if i := strings.IndexAny(rest, ".["); i >= 0 {
		name = rest[:i]
	}
	return ok && slices.Contains(k.Connects, name)
}

// reach checks that a spec names a connection or an address, and never both.
func (c *Check) reach(s *Spec) {
	reach := s.ReachOf()
	if reach.Connection == "" {
		return
	}
	kind, _ := kindNamed(s.Source.Kind().Name)
	// What the connection says is not missing here.
	c.errs = slices.DeleteFunc(c.errs, func(e *SpecError) bool {
		return kind.connects(strings.TrimPrefix(e.Field, c.under)) && c.lines[e.Field] == 0
	})
	for _, name := range kind.Connects {
		at := kind.Name + "." + name
		if c.lines[c.under+at] != 0 {
			c.Fail(at, "", "does not go with connection: address and login are those of connection "+reach.Connection, "remove one of them")
		}
	}
	if c.lines == nil && (len(reach.Addresses) > 0 || reach.Secret) {
		c.Fail(kind.Name+".connection", reach.Connection, "does not go with an address or a login of the spec's own", "remove one of them")
	}
}
