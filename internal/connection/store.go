package connection

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/secret"
	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/internal/storage/s3"
	"github.com/headrace/headrace/internal/suggest"
)

// store is a connection to an S3 service: {s3: {endpoint: https://minio:9000, ...}}. It
// names the secret key and does not hold it.
type store struct {
	Endpoint  string   `yaml:"endpoint"`
	Region    string   `yaml:"region"`
	PathStyle *bool    `yaml:"path_style"`
	AccessKey string   `yaml:"access_key"`
	KeyEnv    string   `yaml:"secret_key_env"`
	KeyFile   string   `yaml:"secret_key_file"`
	Profile   string   `yaml:"profile"`
	Anonymous bool     `yaml:"anonymous"`
	CA        string   `yaml:"ca"`
	ClearText bool     `yaml:"clear_text"`
	Prefixes  []string `yaml:"prefixes"`
}

var storeFields = []string{"endpoint", "region", "path_style", "access_key", "secret_key_env", "secret_key_file", "profile", "anonymous", "ca", "clear_text", "prefixes"}

// parseStore is nil for a connection of another kind.
func parseStore(n *yaml.Node, file string) (*store, error) {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 || n.Content[0].Value != "s3" {
		return nil, nil
	}
	if len(n.Content) > 2 {
		return nil, fmt.Errorf("%s:%d: %s does not go with s3: a connection is of one kind: make two", file, n.Content[2].Line, n.Content[2].Value)
	}
	s, body := &store{}, n.Content[1]
	if body.Kind != yaml.MappingNode && body.Tag != "!!null" {
		return nil, fmt.Errorf("%s:%d: s3: must be a mapping, as in {endpoint: https://minio:9000, region: us-east-1}", file, body.Line)
	}
	for i := 0; i+1 < len(body.Content); i += 2 {
		if name := body.Content[i].Value; !slices.Contains(storeFields, name) {
			return nil, fmt.Errorf("%s:%d: s3.%s: no such field: %s", file, body.Content[i].Line, name, suggest.Hint(name, storeFields, "fields"))
		}
	}
	if err := body.Decode(s); err != nil {
		return nil, fmt.Errorf("%s:%d: s3: %w", file, body.Line, err)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("%s:%d: %w", file, body.Line, err)
	}
	return s, nil
}

func (s *store) check() error {
	ways := 0
	for _, given := range []bool{s.AccessKey != "", s.Profile != "", s.Anonymous} {
		if given {
			ways++
		}
	}
	switch {
	case ways > 1:
		return fmt.Errorf("s3: give only one of access_key, profile and anonymous: the credentials come from one place")
	case s.AccessKey != "" && (s.KeyEnv == "") == (s.KeyFile == ""):
		return fmt.Errorf("s3.access_key: name its secret with secret_key_env (a variable that begins with %s) or secret_key_file", dataset.SecretPrefix)
	case s.AccessKey == "" && s.KeyEnv+s.KeyFile != "":
		return fmt.Errorf("s3.secret_key_env and secret_key_file go with access_key")
	}
	for _, p := range s.Prefixes {
		if _, _, err := s3.ParseURL(p); err != nil {
			return fmt.Errorf("s3.prefixes: %w", err)
		}
	}
	c := s.config()
	if _, err := c.Address(); err != nil {
		return fmt.Errorf("s3.endpoint: %w", err)
	}
	return nil
}

// config is without the secret key.
func (s *store) config() s3.Config {
	return s3.Config{Endpoint: s.Endpoint, Region: s.Region, PathStyle: s.PathStyle, AccessKey: s.AccessKey, Profile: s.Profile,
		Anonymous: s.Anonymous, CA: s.CA, ClearText: s.ClearText, Prefixes: s.Prefixes}
}

// Objects opens what lies in a bucket, for reading. It is a dataset.ObjectsOpener.
func (b *Book) Objects(connection, url string, allowedRoots []string) (storage.Objects, error) {
	return b.Bucket(connection, url, allowedRoots)
}

// Checkpoints opens a folder of checkpoints, s3://bucket/prefix. It uses the connection with the
// longest prefix of url, else the credentials of the environment.
func (b *Book) Checkpoints(url string) (*s3.Bucket, error) {
	by, longest := "", ""
	for name, s := range b.stores {
		for _, p := range s.Prefixes {
			if s3.Below(p, url) && (len(p) > len(longest) || len(p) == len(longest) && name < by) {
				by, longest = name, p
			}
		}
	}
	if by == "" {
		return s3.Open(s3.Config{}, url)
	}
	return b.Bucket(by, url, nil)
}

// Bucket opens s3://bucket/prefix with a connection, or with the credentials of the environment
// if the URL is in an allowed root.
func (b *Book) Bucket(connection, url string, allowedRoots []string) (*s3.Bucket, error) {
	if connection == "" {
		if !slices.ContainsFunc(allowedRoots, func(r string) bool { return strings.HasPrefix(r, "s3://") && s3.Below(r, url) }) {
			return nil, fmt.Errorf("it is refused: a spec may use the credentials of master and agents only for buckets that the operator allows; start them with --allow-root %s, or register a connection and write `connection: NAME`", url)
		}
		return s3.Open(s3.Config{}, url)
	}
	s, ok := b.stores[connection]
	if !ok {
		if part, other := b.named[connection]; other {
			return nil, fmt.Errorf("connection %s is one to %s, and an S3 service is needed", connection, part.Kind().Name)
		}
		return nil, fmt.Errorf("no connection %s is registered here: %s; write it under connections: in the settings file of master and agents",
			connection, suggest.Hint(connection, b.names, "connections"))
	}
	c := s.config()
	if c.AccessKey != "" {
		key, err := secret.Read("s3.secret_key", dataset.Password{Env: s.KeyEnv, File: s.KeyFile}, []string{"/"}) // the operator named the file
		if err != nil {
			return nil, fmt.Errorf("connection %s: %w", connection, err)
		}
		c.SecretKey = key
	}
	opened, err := s3.Open(c, url)
	if err != nil {
		return nil, fmt.Errorf("connection %s: %w", connection, err)
	}
	return opened, nil
}
