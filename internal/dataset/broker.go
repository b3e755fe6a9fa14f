package dataset

import (
	"fmt"
	"net"
	"path"
	"regexp"
	"strconv"

	"go.yaml.in/yaml/v3"
)

// What the parts of several brokers have in common.

// TLS names PEM files on the machines of master and agents, absolute. {} uses the
// system's authorities. Package internal/secret reads them.
type TLS struct {
	CA         string `json:"ca,omitempty"`
	Cert       string `json:"cert,omitempty"`
	Key        string `json:"key,omitempty"`
	ServerName string `json:"server_name,omitempty"`
}

// Password says where a secret is: a spec travels and is shown, and never holds one.
// Exactly one is set. Package internal/secret reads it.
type Password struct {
	Env  string `json:"password_env,omitempty"`  // a variable whose name begins with SecretPrefix
	File string `json:"password_file,omitempty"` // under an allowed root
}

// SecretPrefix begins the names of the variables that a spec may name.
const SecretPrefix = "HEADRACE_"

var secretName = regexp.MustCompile(`^` + SecretPrefix + `[A-Z0-9_]+$`)

// TLS reads a mapping of files.
func (r *Reader) TLS(into **TLS) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		t := &TLS{}
		*into = t
		r.Mapping(n, path, []Member{{"ca", r.Text(&t.CA)}, {"cert", r.Text(&t.Cert)}, {"key", r.Text(&t.Key)}, {"server_name", r.Text(&t.ServerName)}})
	}
}

// Members are what names a secret: password_env and password_file where what is
// "password".
func (p *Password) Members(r *Reader, what string) []Member {
	return []Member{{what + "_env", r.Text(&p.Env)}, {what + "_file", r.Text(&p.File)}}
}

// Offsets reads a mapping from partitions to offsets.
func (r *Reader) Offsets(into *map[string]int64) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		if n.Kind != yaml.MappingNode {
			r.Fail(n, path, "is "+kindName(n)+", and must be a mapping from partitions to offsets", "as in {0: 1500, 1: 900}")
			return
		}
		all := map[string]int64{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := deref(n.Content[i]).Value
			var v int64
			Parsed(r, &v, parseInt64)(deref(n.Content[i+1]), join(path, key))
			all[key] = v
		}
		*into = all
	}
}

// TLS checks the part at field; nil is none.
func (c *Check) TLS(field string, t *TLS) {
	if t == nil {
		return
	}
	for _, f := range []struct{ name, value string }{{"ca", t.CA}, {"cert", t.Cert}, {"key", t.Key}} {
		if f.value != "" && !path.IsAbs(f.value) {
			c.Fail(field+"."+f.name, f.value, "is relative", "master and agents read it: write an absolute path")
		}
	}
	if (t.Cert == "") != (t.Key == "") {
		c.Fail(field, "", "cert and key go together", "")
	}
}

// Password checks where the secret called what ("password", "token") is.
func (c *Check) Password(field, what string, p Password) {
	switch {
	case (p.Env == "") == (p.File == ""):
		c.Fail(field, "", "names no "+what+", or two", "give one of "+what+"_env and "+what+"_file; a spec never holds the "+what)
	case p.Env != "" && !secretName.MatchString(p.Env):
		c.Fail(field+"."+what+"_env", p.Env, "is not a variable that a spec may name", "its name begins with "+SecretPrefix+", in capitals")
	case p.File != "" && !path.IsAbs(p.File):
		c.Fail(field+"."+what+"_file", p.File, "is relative", "master and agents read it: write an absolute path")
	}
}

// HostPorts checks addresses; example is one as it should be.
func (c *Check) HostPorts(field string, all []string, example string) {
	for i, b := range all {
		host, port, err := net.SplitHostPort(b)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || host == "" || n == 0 {
			c.Fail(fmt.Sprintf("%s[%d]", field, i), b, "is not host:port", "as in "+example)
		}
	}
}

// MaxRecord checks a source's limit.
func (c *Check) MaxRecord(field string, size Size) {
	if size < 1 || size > MaxRecord {
		c.Fail(field, size.String(), "must be from 1 to "+MaxRecord.String(), "")
	}
}
