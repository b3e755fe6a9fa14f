package pulsar

import (
	"fmt"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

const entries = 1 << indexBits // offsets of one entry

// Kind says what Pulsar can do. One durable subscription keeps messages that are not read
// yet, and another one shows our progress.
var Kind = dataset.Kind{
	Kind: sources.Kind{
		Name: "pulsar", Unit: sources.Entries, Keyed: true, Rolls: true,
		Commits: true, Retains: true, Foretells: true, Posts: true, Dates: true,
		Start: "start", End: brokers.EndField, Inexact: "positions of a batch are not known before it is read",
		SideBySide: 4,
		Sizes:      sources.Sizes{Block: 16 * entries, Initial: 64 * entries, Min: entries, Max: 100_000 * entries, MaxWhileLive: 10_000 * entries},
	},
	Example: "pulsar: {service: pulsar://broker:6650, admin: http://broker:8080, topic: clicks}", Connects: []string{"service", "admin", "tls", "auth"},
	Address: "pulsar://HOST:6650/TOPIC?admin=http://HOST:8080",
	FromURL: func(hosts []string, topic string, query url.Values) []string {
		admin := query.Get("admin")
		if admin == "" {
			host, _, err := net.SplitHostPort(hosts[0])
			if err != nil {
				host = hosts[0]
			}
			admin = "http://" + net.JoinHostPort(host, "8080")
		}
		return []string{"service: " + dataset.QuoteYAML("pulsar://"+hosts[0]), "admin: " + dataset.QuoteYAML(admin), "topic: " + dataset.QuoteYAML(topic)}
	},
	New:  func() dataset.Part { return &Spec{Start: "earliest", End: "latest", MaxRecord: 16 << 20} },
	Open: openSpec,
}

// Spec is the pulsar part of a dataset's spec. It names a range of every partition of some
// topics. Partitions and their ends are fixed when they are first listed. With End "never"
// messages are read as they come, and new partitions join.
type Spec struct {
	Connection   string            `json:"connection,omitempty"` // one of the operator's, instead of service, admin, tls and auth
	Service      string            `json:"service"`              // pulsar://host:port, or pulsar+ssl://
	Admin        string            `json:"admin"`                // http://host:port, or https://
	Topics       []string          `json:"topics"`               // topic: in a spec's text
	Start        string            `json:"start"`                // earliest (default) | latest | RFC 3339
	StartIDs     map[string]string `json:"start_ids,omitempty"`  // by partition, "3" or "clicks-partition-3": "ledger:entry"; start counts for the others
	End          string            `json:"end"`                  // latest (default: the last message at apply) | RFC 3339 | never
	Refresh      dataset.Duration  `json:"refresh,omitempty"`    // end: never: how often new partitions are looked for; default 5s
	Subscription string            `json:"subscription,omitempty"`
	MaxRecord    dataset.Size      `json:"max_record"` // key and value; default 16MiB
	TLS          *dataset.TLS      `json:"tls,omitempty"`
	Auth         *Auth             `json:"auth,omitempty"`
}

// Auth never holds a secret, because specs are sent and shown. It names where the secret is.
// A client's certificate in tls is a login without Auth.
type Auth struct {
	TokenEnv  string  `json:"token_env,omitempty"`
	TokenFile string  `json:"token_file,omitempty"`
	OAuth2    *OAuth2 `json:"oauth2,omitempty"`
}

func (a *Auth) token() dataset.Password { return dataset.Password{Env: a.TokenEnv, File: a.TokenFile} }

// OAuth2 is a login by client credentials.
type OAuth2 struct {
	Issuer   string `json:"issuer"`
	ClientID string `json:"client_id,omitempty"`
	Audience string `json:"audience,omitempty"`
	Scope    string `json:"scope,omitempty"`
	CA       string `json:"ca,omitempty"`      // the issuer's authority (PEM); default: the system's
	KeyEnv   string `json:"key_env,omitempty"` // the JSON with the client's secret
	KeyFile  string `json:"key_file,omitempty"`
}

func (o *OAuth2) key() dataset.Password { return dataset.Password{Env: o.KeyEnv, File: o.KeyFile} }

var (
	topicName        = regexp.MustCompile(`^(persistent://)?([A-Za-z0-9._=:-]+/[A-Za-z0-9._=:-]+/)?[A-Za-z0-9._=:-]{1,200}$`)
	subscriptionName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,200}$`)
)

func (k *Spec) Kind() sources.Kind { return Kind.Kind }

func (k *Spec) Traits() dataset.Traits {
	t := dataset.Traits{Live: k.End == brokers.Live, Refresh: time.Duration(k.Refresh), MaxRecord: k.MaxRecord, Progress: k.Subscription, ProgressField: "subscription", AtSource: k.atSource()}
	if t.Progress == "" {
		t.Progress, t.ProgressField = "headrace", "" // and the dataset's name: subscriptionOf
	}
	return t
}

// atSource says what is removed from Pulsar together with the dataset.
func (k *Spec) atSource() string {
	name := k.Subscription
	if name == "" {
		return "its two subscriptions, which begin with headrace- and its name, of " + strings.Join(k.Topics, ", ")
	}
	return fmt.Sprintf("subscriptions %s and %s-retain of %s", name, name, strings.Join(k.Topics, ", "))
}

func subscriptionOf(k *Spec, dataset string) string {
	if k.Subscription != "" {
		return k.Subscription
	}
	return "headrace-" + dataset
}

// Compatible says whether a field may change while messages are read: only fields that say
// how to reach the same messages.
func (k *Spec) Compatible(field string) bool {
	return field == "connection" || field == "service" || field == "admin" || field == "subscription" || field == "refresh" || strings.HasPrefix(field, "tls") || strings.HasPrefix(field, "auth")
}

// Reach says what the spec connects to. A token is sent as it is, to the brokers and to the
// admin API.
func (k *Spec) Reach() dataset.Reach {
	r := dataset.Reach{Connection: k.Connection, Secret: k.Auth != nil || k.TLS != nil && k.TLS.Cert != ""}
	urls := append(strings.Split(k.Service, ","), k.Admin)
	if k.Auth != nil && k.Auth.OAuth2 != nil {
		urls = append(urls, k.Auth.OAuth2.Issuer)
	}
	for _, text := range urls {
		scheme, address, ok := strings.Cut(text, "://")
		if !ok { // a further broker of the service
			scheme, address = strings.SplitN(k.Service, ":", 2)[0], text
		}
		if address, _, _ = strings.Cut(address, "/"); address == "" {
			continue
		}
		r.ClearText = r.ClearText || k.Auth != nil && (scheme == "pulsar" || scheme == "http")
		r.Addresses = append(r.Addresses, withPort(scheme, address))
	}
	return r
}

func withPort(scheme, address string) string {
	if _, _, err := net.SplitHostPort(address); err == nil {
		return address
	}
	return net.JoinHostPort(strings.Trim(address, "[]"), map[string]string{"pulsar": "6650", "pulsar+ssl": "6651", "http": "80", "https": "443"}[scheme])
}

// Connect returns the spec with the fields that Kind.Connects names taken from another one.
func (k *Spec) Connect(from dataset.Part) dataset.Part {
	c := *k
	if f, ok := from.(*Spec); ok {
		c.Service, c.Admin, c.TLS, c.Auth = f.Service, f.Admin, f.TLS, f.Auth
	}
	return &c
}

func (k *Spec) Fill() { brokers.FillRefresh(k.End, &k.Refresh) }

func (k *Spec) Members(r *dataset.Reader) []dataset.Member {
	return []dataset.Member{
		{Name: "connection", Read: r.Text(&k.Connection)},
		{Name: "service", Read: r.Text(&k.Service)},
		{Name: "admin", Read: r.Text(&k.Admin)},
		{Name: "topic", Read: r.Texts(&k.Topics)},
		{Name: "topics", Read: r.Texts(&k.Topics)},
		{Name: "start", Read: r.Text(&k.Start)},
		{Name: "start_ids", Read: func(n *yaml.Node, path string) { k.readIDs(r, n, path) }},
		{Name: "end", Read: r.Text(&k.End)},
		{Name: "refresh", Read: dataset.Parsed(r, &k.Refresh, dataset.ParseDuration)},
		{Name: "subscription", Read: r.Text(&k.Subscription)},
		{Name: "max_record", Read: dataset.Parsed(r, &k.MaxRecord, dataset.ParseSize)},
		{Name: "tls", Read: r.TLS(&k.TLS)},
		{Name: "auth", Read: func(n *yaml.Node, path string) {
			k.Auth = &Auth{}
			r.Mapping(n, path, []dataset.Member{{Name: "token_env", Read: r.Text(&k.Auth.TokenEnv)}, {Name: "token_file", Read: r.Text(&k.Auth.TokenFile)},
				{Name: "oauth2", Read: func(n *yaml.Node, path string) {
					o := &OAuth2{}
					k.Auth.OAuth2 = o
					r.Mapping(n, path, []dataset.Member{{Name: "issuer", Read: r.Text(&o.Issuer)}, {Name: "client_id", Read: r.Text(&o.ClientID)},
						{Name: "audience", Read: r.Text(&o.Audience)}, {Name: "scope", Read: r.Text(&o.Scope)},
						{Name: "ca", Read: r.Text(&o.CA)},
						{Name: "key_env", Read: r.Text(&o.KeyEnv)}, {Name: "key_file", Read: r.Text(&o.KeyFile)}})
				}}})
		}},
	}
}

func (k *Spec) readIDs(r *dataset.Reader, n *yaml.Node, path string) {
	all := map[string]string{}
	if err := n.Decode(&all); err != nil {
		r.Fail(n, path, "must be a mapping from partitions to message ids", `as in {0: "12:500", 1: "13:0"}`)
		return
	}
	k.StartIDs = all
}

const topicHint = "as in clicks, or persistent://tenant/namespace/clicks"

func (k *Spec) Check(c *dataset.Check, s *dataset.Spec) {
	checkURL(c, "pulsar.service", k.Service, "pulsar://broker:6650", "pulsar", "pulsar+ssl")
	checkURL(c, "pulsar.admin", k.Admin, "http://broker:8080", "http", "https")
	if len(k.Topics) == 0 {
		c.Fail("pulsar.topic", "", "must be given: what to read", "")
	}
	for i, t := range k.Topics {
		at := fmt.Sprintf("pulsar.topics[%d]", i)
		if !topicName.MatchString(t) {
			c.Fail(at, t, "is not a persistent topic's name", topicHint)
		} else if slices.IndexFunc(k.Topics, func(o string) bool { return fullName(o) == fullName(t) }) < i {
			c.Fail(at, t, "is named twice", "")
		}
	}
	c.DeadLetterTopic(s, topicName.MatchString, topicHint)
	brokers.CheckEnd(c, "pulsar", "start", k.Start, "")
	for _, key := range slices.Sorted(maps.Keys(k.StartIDs)) {
		if _, err := parseID(k.StartIDs[key]); err != nil {
			c.Fail("pulsar.start_ids."+key, k.StartIDs[key], "is not a message id", "as in 12:500 (ledger, entry) or 12:500:3 (the fourth message of a batch)")
		}
		if !k.names(key) {
			c.Fail("pulsar.start_ids."+key, "", "is not a partition of a topic that is read here", "write its number, as in 3, or its name, as in "+shortName(fullName(firstOf(k.Topics)))+"-partition-3")
		}
	}
	if start, err1 := time.Parse(time.RFC3339, k.Start); err1 == nil {
		if end, err2 := time.Parse(time.RFC3339, k.End); err2 == nil && end.Before(start) {
			c.Fail("pulsar.end", k.End, "is before pulsar.start, "+k.Start, "")
		}
	}
	brokers.CheckRefresh(c, "pulsar", k.End, k.Refresh)
	if k.End != brokers.Live {
		brokers.CheckEnd(c, "pulsar", "end", k.End, "; never reads on as messages come")
	}
	if k.Subscription != "" && !subscriptionName.MatchString(k.Subscription) {
		c.Fail("pulsar.subscription", k.Subscription, "is not a subscription's name", "letters, digits, '.', '_' and '-'")
	}
	c.MaxRecord("pulsar.max_record", k.MaxRecord)
	c.TLS("pulsar.tls", k.TLS)
	k.checkAuth(c)
}

// names says whether a key of start_ids names a partition: by its number, or as people write
// it (partition.String).
func (k *Spec) names(key string) bool {
	if isNumber(key) {
		return true
	}
	for _, t := range k.Topics {
		rest, ok := strings.CutPrefix(key, shortName(fullName(t)))
		if number, numbered := strings.CutPrefix(rest, "-partition-"); ok && (rest == "" || numbered && isNumber(number)) {
			return true
		}
	}
	return false
}

func isNumber(text string) bool {
	n, err := strconv.ParseUint(text, 10, 31)
	return err == nil && strconv.FormatUint(n, 10) == text
}

func firstOf(topics []string) string {
	if len(topics) == 0 {
		return "clicks"
	}
	return topics[0]
}

func (k *Spec) checkAuth(c *dataset.Check) {
	switch a := k.Auth; {
	case a == nil:
	case a.OAuth2 != nil && a.token() != (dataset.Password{}):
		c.Fail("pulsar.auth", "", "names a token and oauth2", "remove one of them")
	case a.OAuth2 != nil:
		checkURL(c, "pulsar.auth.oauth2.issuer", a.OAuth2.Issuer, "https://login.example.org", "https", "http")
		c.TLS("pulsar.auth.oauth2", &dataset.TLS{CA: a.OAuth2.CA})
		c.Password("pulsar.auth.oauth2", "key", a.OAuth2.key())
	default:
		c.Password("pulsar.auth", "token", a.token())
	}
}

func checkURL(c *dataset.Check, field, text, example string, schemes ...string) {
	if text == "" {
		c.Fail(field, "", "must be given", "as in "+example)
		return
	}
	// The service may name several brokers, with commas.
	u, err := url.Parse(strings.Split(text, ",")[0])
	if err != nil || u.Host == "" || !slices.Contains(schemes, u.Scheme) || u.User != nil {
		c.Fail(field, text, "is not an address", "as in "+example)
	}
}

// parseID reads ledger:entry, or ledger:entry:index.
func parseID(text string) (p Place, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 2 && len(parts) != 3 {
		return p, fmt.Errorf("pulsar: %q is not ledger:entry", text)
	}
	var n [3]int64
	for i, s := range parts {
		if n[i], err = strconv.ParseInt(s, 10, 64); err != nil || n[i] < 0 {
			return p, fmt.Errorf("pulsar: %q is not ledger:entry", text)
		}
	}
	if n[2] >= entries || n[1] >= 1<<(62-indexBits) || n[0] >= 1<<(62-pieceBits) {
		return p, fmt.Errorf("pulsar: %q is too large", text)
	}
	return Place{n[0], n[1], int32(n[2])}, nil
}

// openSpec opens the topics of a dataset's spec.
func openSpec(spec *dataset.Spec, in dataset.Opening) (sources.Source, error) {
	k, ok := spec.Source.(*Spec)
	if !ok {
		return nil, fmt.Errorf("dataset %s: no pulsar in its spec", spec.Name)
	}
	name := subscriptionOf(k, spec.Name)
	o := Options{Dataset: spec.Name, Service: k.Service, Admin: k.Admin, Topics: slices.Clone(k.Topics), MaxRecord: int64(k.MaxRecord),
		Progress: name, Retain: name + "-retain", Known: in.Known, Logger: in.Logger}
	var ids map[string]Place
	err := o.secure(k, in.AllowedRoots)
	if err == nil {
		ids, err = placesOf(k.StartIDs)
	}
	if err == nil {
		o.Start, err = brokers.EndOf("pulsar", k.Start, ids)
	}
	if err == nil {
		o.End, err = brokers.EndOf[Place]("pulsar", k.End, nil)
	}
	var s *Source
	if err == nil {
		s, err = Open(o)
	}
	if err != nil {
		return nil, fmt.Errorf("dataset %s: %w", spec.Name, err)
	}
	return s, nil
}

func placesOf(ids map[string]string) (map[string]Place, error) {
	all := map[string]Place{}
	for key, text := range ids {
		p, err := parseID(text)
		if err != nil {
			return nil, err
		}
		all[key] = p
	}
	return all, nil
}
