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
	"github.com/headrace/headrace/sources/brokers"
)

// Kind says what Kafka can do. Kafka deletes by its own retention, whatever a group has
// read, so it cannot retain records for us.
var Kind = dataset.Kind{
	Kind: sources.Kind{
		Name: "kafka", Unit: "records", Keyed: true, Commits: true, Foretells: true, Posts: true, Dates: true,
		Start: "start", End: brokers.EndField,
		Sizes: sources.Sizes{Block: 4096, Initial: 10_000, Min: 100, Max: 10_000_000,
			// A lease that ends ahead of head blocks no other worker, so it may be long, but not
			// for hours.
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

// Spec is the kafka part of a dataset's spec. It names a range of every partition of some
// topics. Partitions and their ends are fixed when they are first listed. With End "never"
// records are read as they come, and new partitions join.
type Spec struct {
	Connection   string           `json:"connection,omitempty"`    // one of the operator's, instead of brokers, tls and sasl
	Brokers      []string         `json:"brokers"`                 // host:port, a few of the cluster's
	Topics       []string         `json:"topics"`                  // topic: in a spec's text
	Start        string           `json:"start"`                   // earliest (default) | latest | RFC 3339
	StartOffsets map[string]int64 `json:"start_offsets,omitempty"` // by partition, "3" or "clicks/3"; start counts for the others
	End          string           `json:"end"`                     // latest (default: the last stable offset at apply) | RFC 3339 | never
	EndOffsets   map[string]int64 `json:"end_offsets,omitempty"`   // exclusive
	Refresh      dataset.Duration `json:"refresh,omitempty"`       // end: never: how often new partitions are looked for; default 5s
	Group        string           `json:"group,omitempty"`         // the group whose offsets show our progress; "": nothing is committed
	MaxRecord    dataset.Size     `json:"max_record"`              // key and value; default 16MiB
	TLS          *dataset.TLS     `json:"tls,omitempty"`
	SASL         *SASL            `json:"sasl,omitempty"`
}

// SASL never holds a password, because specs are sent and shown. It names where it is.
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
	return dataset.Traits{Live: k.End == brokers.Live, Refresh: time.Duration(k.Refresh), MaxRecord: k.MaxRecord, Progress: k.Group, ProgressField: "group"}
}

// Compatible says whether a field may change while records are read: only fields that say
// how to reach the same records.
func (k *Spec) Compatible(field string) bool {
	return field == "brokers" || field == "connection" || field == "group" || field == "refresh" || strings.HasPrefix(field, "tls") || strings.HasPrefix(field, "sasl")
}

// Reach says what the spec connects to. Only the mechanism plain sends the password itself.
func (k *Spec) Reach() dataset.Reach {
	return dataset.Reach{Connection: k.Connection, Addresses: k.Brokers, Secret: k.SASL != nil || k.TLS != nil && k.TLS.Cert != "",
		ClearText: k.TLS == nil && k.SASL != nil && k.SASL.Mechanism == "plain"}
}

// Connect returns the spec with the fields that Kind.Connects names taken from another one.
func (k *Spec) Connect(from dataset.Part) dataset.Part {
	c := *k
	if f, ok := from.(*Spec); ok {
		c.Brokers, c.TLS, c.SASL = f.Brokers, f.TLS, f.SASL
	}
	return &c
}

func (k *Spec) Fill() { brokers.FillRefresh(k.End, &k.Refresh) }

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

const topicHint = "letters, digits, '.', '_' and '-', 249 at most"

func isTopic(name string) bool {
	return topicName.MatchString(name) && name != "." && name != ".."
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
		if !isTopic(t) {
			c.Fail(at, t, "is not a topic's name", topicHint)
		} else if slices.Index(k.Topics, t) < i {
			c.Fail(at, t, "is named twice", "")
		}
	}
	c.DeadLetterTopic(s, isTopic, topicHint)
	brokers.CheckEnd(c, "kafka", "start", k.Start, "; offsets go to kafka.start_offsets")
	checkOffsets(c, "start_offsets", k.StartOffsets, k.Topics)
	brokers.CheckRefresh(c, "kafka", k.End, k.Refresh)
	if k.End == brokers.Live {
		if len(k.EndOffsets) > 0 {
			c.Fail("kafka.end_offsets", "", "does not go with end: never", "remove one of them")
		}
	} else {
		brokers.CheckEnd(c, "kafka", "end", k.End, "; offsets go to kafka.end_offsets; never reads on as records come")
		checkOffsets(c, "end_offsets", k.EndOffsets, k.Topics)
		k.checkOrder(c)
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

// checkOffsets checks the keys and values of start_offsets or end_offsets.
func checkOffsets(c *dataset.Check, field string, offsets map[string]int64, topics []string) {
	for _, key := range slices.Sorted(maps.Keys(offsets)) {
		at := "kafka." + field + "." + key
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
