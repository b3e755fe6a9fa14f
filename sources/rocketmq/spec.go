package rocketmq

import (
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/internal/secret"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

// Kind says what RocketMQ can do. RocketMQ deletes by its own retention, whatever a group has
// read, so it cannot retain messages for us.
var Kind = dataset.Kind{
	Kind: sources.Kind{
		Name: "rocketmq", Unit: "records", Keyed: true, Commits: true, Foretells: true, Posts: true, Dates: true,
		Start: "start", End: brokers.EndField, Inexact: "its queues are not read as one sequence",
		SideBySide: 4,
		Sizes: sources.Sizes{Block: 4096, Initial: 10_000, Min: 100, Max: 10_000_000,
			// A lease that ends ahead of head blocks no other worker, so it may be long, but not
			// for hours.
			MaxWhileLive: 1_000_000},
	},
	Example: "rocketmq: {name_servers: [mq-1:9876], topic: clicks}", Connects: []string{"name_servers", "tls", "acl"},
	Address: "rocketmq://HOST:9876/TOPIC",
	FromURL: func(hosts []string, topic string, _ url.Values) []string {
		return []string{"name_servers: " + dataset.QuoteList(hosts), "topic: " + dataset.QuoteYAML(topic)}
	},
	New:  func() dataset.Part { return &Spec{Start: "earliest", End: "latest", MaxRecord: 16 << 20} },
	Open: openSpec,
}

// Spec is the rocketmq part of a dataset's spec. It names a range of every queue of some
// topics. Queues and their ends are fixed when they are first listed. With End "never"
// messages are read as they come, and new queues join.
type Spec struct {
	Connection   string           `json:"connection,omitempty"`    // one of the operator's, instead of name_servers, tls and acl
	NameServers  []string         `json:"name_servers"`            // host:port
	Topics       []string         `json:"topics"`                  // topic: in a spec's text
	Brokers      []string         `json:"brokers,omitempty"`       // names that must be registered before anything is listed
	Tags         []string         `json:"tags,omitempty"`          // only messages with one of them are records
	Start        string           `json:"start"`                   // earliest (default) | latest | RFC 3339
	StartOffsets map[string]int64 `json:"start_offsets,omitempty"` // by queue: "3", "broker-a/3" or "clicks/broker-a/3"; start counts for the others
	End          string           `json:"end"`                     // latest (default: the queue's head at apply) | RFC 3339 | never
	EndOffsets   map[string]int64 `json:"end_offsets,omitempty"`   // exclusive
	Refresh      dataset.Duration `json:"refresh,omitempty"`       // end: never: how often new queues are looked for; default 5s
	Group        string           `json:"group,omitempty"`         // the group whose offsets show our progress; "": nothing is committed
	MaxRecord    dataset.Size     `json:"max_record"`              // of a body, decompressed; default 16MiB
	TLS          *dataset.TLS     `json:"tls,omitempty"`
	ACL          *ACL             `json:"acl,omitempty"`
}

// ACL never holds the secret key, because specs are sent and shown. It names where it is.
type ACL struct {
	AccessKey     string `json:"access_key"`
	SecretKeyEnv  string `json:"secret_key_env,omitempty"`
	SecretKeyFile string `json:"secret_key_file,omitempty"`
}

func (a *ACL) secretKey() dataset.Password {
	return dataset.Password{Env: a.SecretKeyEnv, File: a.SecretKeyFile}
}

// RocketMQ's own rules for names.
var (
	topicName = regexp.MustCompile(`^[%|a-zA-Z0-9_-]{1,127}$`)
	groupName = regexp.MustCompile(`^[%|a-zA-Z0-9_-]{1,120}$`)
)

func (k *Spec) Kind() sources.Kind { return Kind.Kind }

func (k *Spec) Traits() dataset.Traits {
	return dataset.Traits{Live: k.End == brokers.Live, Refresh: time.Duration(k.Refresh), MaxRecord: k.MaxRecord, Progress: k.Group, ProgressField: "group"}
}

// Compatible says whether a field may change while records are read: only fields that say
// how to reach the same records.
func (k *Spec) Compatible(field string) bool {
	return slices.Contains([]string{"connection", "name_servers", "brokers", "group", "refresh"}, field) || strings.HasPrefix(field, "tls") || strings.HasPrefix(field, "acl")
}

// Reach says what the spec connects to. Requests are signed with the key, which is never sent.
func (k *Spec) Reach() dataset.Reach {
	return dataset.Reach{Connection: k.Connection, Addresses: k.NameServers, Secret: k.ACL != nil || k.TLS != nil && k.TLS.Cert != ""}
}

// Connect returns the spec with the fields that Kind.Connects names taken from another one.
func (k *Spec) Connect(from dataset.Part) dataset.Part {
	c := *k
	if f, ok := from.(*Spec); ok {
		c.NameServers, c.TLS, c.ACL = f.NameServers, f.TLS, f.ACL
	}
	return &c
}

func (k *Spec) Fill() { brokers.FillRefresh(k.End, &k.Refresh) }

func (k *Spec) Members(r *dataset.Reader) []dataset.Member {
	return []dataset.Member{
		{Name: "connection", Read: r.Text(&k.Connection)},
		{Name: "name_servers", Read: r.Texts(&k.NameServers)},
		{Name: "topic", Read: r.Texts(&k.Topics)},
		{Name: "topics", Read: r.Texts(&k.Topics)},
		{Name: "brokers", Read: r.Texts(&k.Brokers)},
		{Name: "tags", Read: r.Texts(&k.Tags)},
		{Name: "start", Read: r.Text(&k.Start)},
		{Name: "start_offsets", Read: r.Offsets(&k.StartOffsets)},
		{Name: "end", Read: r.Text(&k.End)},
		{Name: "end_offsets", Read: r.Offsets(&k.EndOffsets)},
		{Name: "refresh", Read: dataset.Parsed(r, &k.Refresh, dataset.ParseDuration)},
		{Name: "group", Read: r.Text(&k.Group)},
		{Name: "max_record", Read: dataset.Parsed(r, &k.MaxRecord, dataset.ParseSize)},
		{Name: "tls", Read: r.TLS(&k.TLS)},
		{Name: "acl", Read: func(n *yaml.Node, path string) {
			k.ACL = &ACL{}
			r.Mapping(n, path, []dataset.Member{{Name: "access_key", Read: r.Text(&k.ACL.AccessKey)},
				{Name: "secret_key_env", Read: r.Text(&k.ACL.SecretKeyEnv)}, {Name: "secret_key_file", Read: r.Text(&k.ACL.SecretKeyFile)}})
		}},
	}
}

const topicHint = "letters, digits, '_', '-', '%' and '|', 127 at most"

func (k *Spec) Check(c *dataset.Check, s *dataset.Spec) {
	if len(k.NameServers) == 0 {
		c.Fail("rocketmq.name_servers", "", "must be given: where the cluster is", "as in name_servers: [mq-1:9876, mq-2:9876]")
	}
	c.HostPorts("rocketmq.name_servers", k.NameServers, "mq-1:9876")
	c.DeadLetterTopic(s, topicName.MatchString, topicHint)
	if len(k.Topics) == 0 {
		c.Fail("rocketmq.topic", "", "must be given: what to read", "")
	}
	for i, t := range k.Topics {
		at := fmt.Sprintf("rocketmq.topics[%d]", i)
		if !topicName.MatchString(t) {
			c.Fail(at, t, "is not a topic's name", topicHint)
		} else if slices.Index(k.Topics, t) < i {
			c.Fail(at, t, "is named twice", "")
		}
	}
	for i, t := range k.Tags {
		if strings.TrimSpace(t) == "" || strings.Contains(t, "||") || t == "*" {
			c.Fail(fmt.Sprintf("rocketmq.tags[%d]", i), t, "is not a tag", "name tags one by one, as in tags: [click, view]; without tags every message is a record")
		}
	}
	if k.Group != "" && !groupName.MatchString(k.Group) {
		c.Fail("rocketmq.group", k.Group, "is not a group's name", "letters, digits, '_', '-', '%' and '|', 120 at most")
	}
	brokers.CheckEnd(c, "rocketmq", "start", k.Start, "; offsets go to rocketmq.start_offsets")
	k.checkOffsets(c, "start_offsets", k.StartOffsets)
	brokers.CheckRefresh(c, "rocketmq", k.End, k.Refresh)
	if k.End == brokers.Live {
		if len(k.EndOffsets) > 0 {
			c.Fail("rocketmq.end_offsets", "", "does not go with end: never", "remove one of them")
		}
	} else {
		brokers.CheckEnd(c, "rocketmq", "end", k.End, "; offsets go to rocketmq.end_offsets; never reads on as messages come")
		k.checkOffsets(c, "end_offsets", k.EndOffsets)
	}
	c.MaxRecord("rocketmq.max_record", k.MaxRecord)
	c.TLS("rocketmq.tls", k.TLS)
	if k.ACL != nil {
		if k.ACL.AccessKey == "" {
			c.Fail("rocketmq.acl.access_key", "", "must be given", "")
		}
		c.Password("rocketmq.acl", "secret_key", k.ACL.secretKey())
	}
}

// checkOffsets checks the keys and values of start_offsets or end_offsets.
func (k *Spec) checkOffsets(c *dataset.Check, field string, offsets map[string]int64) {
	for _, key := range slices.Sorted(maps.Keys(offsets)) {
		at := "rocketmq." + field + "." + key
		names := strings.Split(key, "/")
		number := names[len(names)-1]
		if n, err := strconv.ParseInt(number, 10, 32); len(names) > 3 || err != nil || n < 0 || strconv.FormatInt(n, 10) != number {
			c.Fail(at, "", "is not a queue", "write its number, as in 3, with its broker, as in broker-a/3, or with its topic too, as in clicks/broker-a/3")
		} else if len(names) == 3 && !slices.Contains(k.Topics, names[0]) {
			c.Fail(at, "", "is of no topic that is read here", dataset.OneOf(k.Topics...))
		} else if offsets[key] < 0 {
			c.Fail(at, strconv.FormatInt(offsets[key], 10), "is negative", "")
		}
	}
}

// openSpec opens the topics of a dataset's spec.
func openSpec(spec *dataset.Spec, in dataset.Opening) (sources.Source, error) {
	k, ok := spec.Source.(*Spec)
	if !ok {
		return nil, fmt.Errorf("dataset %s: no rocketmq in its spec", spec.Name)
	}
	o := Options{Dataset: spec.Name, NameServers: k.NameServers, Topics: k.Topics, Brokers: k.Brokers, Tags: k.Tags,
		MaxRecord: int64(k.MaxRecord), Group: k.Group, Bare: bare(spec), Known: in.Known, Logger: in.Logger}
	var err error
	if o.Start, err = brokers.EndOf("rocketmq", k.Start, k.StartOffsets); err == nil {
		o.End, err = brokers.EndOf("rocketmq", k.End, k.EndOffsets)
	}
	if err == nil && k.TLS != nil {
		o.TLS, err = secret.TLS("rocketmq.tls", k.TLS)
	}
	if err == nil && k.ACL != nil {
		o.Credentials = remoting.Credentials{AccessKey: k.ACL.AccessKey}
		o.Credentials.SecretKey, err = secret.Read("rocketmq.acl.secret_key", k.ACL.secretKey(), in.AllowedRoots)
	}
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", spec.Name, err)
	}
	s, err := Open(o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// bare says that no column uses keys or properties, so that they need not be read.
func bare(spec *dataset.Spec) bool {
	paths := []string{spec.Decode.EventTime}
	for _, c := range spec.Decode.Columns {
		paths = append(append(paths, c.Path), c.Paths...)
	}
	return !slices.ContainsFunc(paths, func(p string) bool { return p == "$key" || strings.HasPrefix(p, "$header.") })
}
