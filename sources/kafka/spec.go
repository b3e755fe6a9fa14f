package kafka

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
	"github.com/headrace/headrace/sources"
)

// Kind is what Kafka can do. It deletes by its own retention, whatever a group has
// read, so nothing can be retained there.
var Kind = dataset.Kind{
	Kind: sources.Kind{
		Name: "kafka", Unit: "records", Keyed: true, Commits: true, Foretells: true, Posts: true,
		Sizes: sources.Sizes{Block: 4096, Initial: 10_000, Min: 100, Max: 10_000_000,
			// A lease that ends ahead of head holds nothing up: it may be long, but not for hours.
			MaxWhileLive: 1_000_000},
	},
	Example: "kafka: {brokers: [kafka-1:9092], topic: clicks}", Connects: []string{"brokers", "tls", "sasl"},
	Address: "kafka://HOST:9092/TOPIC",
	FromURL: func(hosts []string, topic string, _ url.Values) []string {
		return []string{"brokers: " + dataset.QuoteList(hosts), "topic: " + dataset.QuoteYAML(topic)}
	},
	New:  func() dataset.Part { return &Spec{Start: "earliest", End: "latest", MaxRecord: 16 << 20} },
	Open: openSpec,
}

const (
	endNever       = "never"
	defaultRefresh = dataset.Duration(5 * time.Second)
	leastRefresh   = dataset.Duration(100 * time.Millisecond)
)

// Spec is a piece of every partition of some topics. What is listed first is fixed
// then and for good, unless End is never: then records are read as they come, and new
// partitions join.
type Spec struct {
	Connection   string           `json:"connection,omitempty"`    // of the operator's, in place of brokers, tls and sasl
	Brokers      []string         `json:"brokers"`                 // host:port, a few of the cluster's
	Topics       []string         `json:"topics"`                  // topic: in a spec's text
	Start        string           `json:"start"`                   // earliest (default) | latest | RFC 3339
	StartOffsets map[string]int64 `json:"start_offsets,omitempty"` // by partition, "3" or "clicks/3"; start is for the others
	End          string           `json:"end"`                     // latest (default: the last stable offset at apply) | RFC 3339 | never
	EndOffsets   map[string]int64 `json:"end_offsets,omitempty"`   // exclusive
	Refresh      dataset.Duration `json:"refresh,omitempty"`       // end: never: how often new partitions are looked for; default 5s
	Group        string           `json:"group,omitempty"`         // whose offsets tell our progress; "" commits none
	MaxRecord    dataset.Size     `json:"max_record"`              // key and value; default 16MiB
	TLS          *dataset.TLS     `json:"tls,omitempty"`
	SASL         *SASL            `json:"sasl,omitempty"`
}

// SASL never holds a password: a spec travels and is shown.
type SASL struct {
	Mechanism string `json:"mechanism"` // plain | scram-sha-256 | scram-sha-512
	User      string `json:"user"`
	dataset.Password
}

var (
	topicName  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
	mechanisms = []string{"plain", "scram-sha-256", "scram-sha-512"}
)

func (k *Spec) Kind() sources.Kind { return Kind.Kind }

func (k *Spec) Traits() dataset.Traits {
	return dataset.Traits{Live: k.End == endNever, Refresh: time.Duration(k.Refresh), MaxRecord: k.MaxRecord, Progress: k.Group, ProgressField: "group"}
}

// Compatible: how the same records are reached may change.
func (k *Spec) Compatible(field string) bool {
	return field == "brokers" || field == "connection" || field == "group" || field == "refresh" || strings.HasPrefix(field, "tls") || strings.HasPrefix(field, "sasl")
}

// Reach: only the mechanism plain sends the password itself.
func (k *Spec) Reach() dataset.Reach {
	return dataset.Reach{Connection: k.Connection, Addresses: k.Brokers, Secret: k.SASL != nil || k.TLS != nil && k.TLS.Cert != "",
		ClearText: k.TLS == nil && k.SASL != nil && k.SASL.Mechanism == "plain"}
}

// Connect takes what Kind.Connects names.
func (k *Spec) Connect(from dataset.Part) dataset.Part {
	c := *k
	if f, ok := from.(*Spec); ok {
		c.Brokers, c.TLS, c.SASL = f.Brokers, f.TLS, f.SASL
	}
	return &c
}

func (k *Spec) Fill() {
	if k.End == endNever && k.Refresh == 0 {
		k.Refresh = defaultRefresh
	}
}

func (k *Spec) Members(r *dataset.Reader) []dataset.Member {
	return []dataset.Member{
		{Name: "connection", Read: r.Text(&k.Connection)},
		{Name: "brokers", Read: r.Texts(&k.Brokers)},
		{Name: "topic", Read: r.Texts(&k.Topics)},
		{Name: "topics", Read: r.Texts(&k.Topics)},
		{Name: "start", Read: r.Text(&k.Start)},
		{Name: "start_offsets", Read: r.Offsets(&k.StartOffsets)},
		{Name: "end", Read: r.Text(&k.End)},
		{Name: "end_offsets", Read: r.Offsets(&k.EndOffsets)},
		{Name: "refresh", Read: dataset.Parsed(r, &k.Refresh, dataset.ParseDuration)},
		{Name: "group", Read: r.Text(&k.Group)},
		{Name: "max_record", Read: dataset.Parsed(r, &k.MaxRecord, dataset.ParseSize)},
		{Name: "tls", Read: r.TLS(&k.TLS)},
		{Name: "sasl", Read: func(n *yaml.Node, path string) {
			k.SASL = &SASL{}
			r.Mapping(n, path, append([]dataset.Member{{Name: "mechanism", Read: r.Text(&k.SASL.Mechanism)}, {Name: "user", Read: r.Text(&k.SASL.User)}},
				k.SASL.Password.Members(r, "password")...))
		}},
	}
}

func (k *Spec) Check(c *dataset.Check, s *dataset.Spec) {
	if len(k.Brokers) == 0 {
		c.Fail("kafka.brokers", "", "must be given: where the cluster is", "as in brokers: [kafka-1:9092, kafka-2:9092]")
	}
	c.HostPorts("kafka.brokers", k.Brokers, "kafka-1:9092")
	if len(k.Topics) == 0 {
		c.Fail("kafka.topic", "", "must be given: what to read", "")
	}
	for i, t := range k.Topics {
		at := fmt.Sprintf("kafka.topics[%d]", i)
		if !topicName.MatchString(t) || t == "." || t == ".." {
			c.Fail(at, t, "is not a topic's name", "letters, digits, '.', '_' and '-', 249 at most")
		} else if slices.Index(k.Topics, t) < i {
			c.Fail(at, t, "is named twice", "")
		}
	}
	checkEnd(c, "kafka.start", k.Start, k.StartOffsets, k.Topics)
	if k.End == endNever {
		k.checkLive(c)
	} else {
		checkEnd(c, "kafka.end", k.End, k.EndOffsets, k.Topics)
		k.checkOrder(c)
		if k.Refresh != 0 {
			c.Fail("kafka.refresh", k.Refresh.String(), "is for input without an end", "remove it, or set end: never")
		}
	}
	c.MaxRecord("kafka.max_record", k.MaxRecord)
	c.TLS("kafka.tls", k.TLS)
	if k.SASL != nil {
		c.Among("kafka.sasl.mechanism", k.SASL.Mechanism, mechanisms...)
		if k.SASL.User == "" {
			c.Fail("kafka.sasl.user", "", "must be given", "")
		}
		c.Password("kafka.sasl", "password", k.SASL.Password)
	}
}

func (k *Spec) checkLive(c *dataset.Check) {
	if len(k.EndOffsets) > 0 {
		c.Fail("kafka.end_offsets", "", "does not go with end: never", "remove one of them")
	}
	if k.Refresh < leastRefresh {
		c.Fail("kafka.refresh", k.Refresh.String(), "is too often", "use "+leastRefresh.String()+" or more; the default is "+defaultRefresh.String())
	}
}

// checkOrder refuses an end that the spec itself puts before its start.
func (k *Spec) checkOrder(c *dataset.Check) {
	start, err1 := time.Parse(time.RFC3339, k.Start)
	end, err2 := time.Parse(time.RFC3339, k.End)
	if err1 == nil && err2 == nil && end.Before(start) {
		c.Fail("kafka.end", k.End, "is before kafka.start, "+k.Start, "")
	}
	for _, key := range slices.Sorted(maps.Keys(k.EndOffsets)) {
		_, number, named := strings.Cut(key, "/")
		from, given := k.StartOffsets[key]
		if !given && named {
			from, given = k.StartOffsets[number]
		}
		if to := k.EndOffsets[key]; given && to < from {
			c.Fail("kafka.end_offsets."+key, strconv.FormatInt(to, 10), fmt.Sprintf("is before the start of that partition, %d", from), "end offsets are exclusive")
		}
	}
}

func checkEnd(c *dataset.Check, field, text string, offsets map[string]int64, topics []string) {
	hint := ""
	if field == "kafka.end" {
		hint = "; never reads on as records come"
	}
	if text != "earliest" && text != "latest" {
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			c.Fail(field, text, "is neither earliest, latest nor a time", "as in 2026-01-31T08:00:00Z; offsets go to "+field+"_offsets"+hint)
		}
	} else if field == "kafka.end" && text == "earliest" {
		c.Fail(field, text, "leaves nothing to read", "use latest or a time")
	}
	for _, key := range slices.Sorted(maps.Keys(offsets)) {
		at := field + "_offsets." + key
		topic, number, named := strings.Cut(key, "/")
		if !named {
			number = topic
		} else if !slices.Contains(topics, topic) {
			c.Fail(at, "", "is of no topic that is read here", dataset.OneOf(topics...))
			continue
		}
		if n, err := strconv.ParseInt(number, 10, 32); err != nil || n < 0 || strconv.FormatInt(n, 10) != number {
			c.Fail(at, "", "is not a partition", "write its number, as in 3, or with its topic, as in clicks/3")
		} else if offsets[key] < 0 {
			c.Fail(at, strconv.FormatInt(offsets[key], 10), "is negative", "")
		}
	}
}
