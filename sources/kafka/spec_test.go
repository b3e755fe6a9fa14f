package kafka

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources/files"
)

func init() { dataset.Register(files.Kind, Kind) }

func mustParse(t *testing.T, text string) *dataset.Spec {
	t.Helper()
	s, err := dataset.Parse([]byte(text), "events.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

const eventsSpec = `name: events
kafka:
  brokers: [kafka-1:9092]
  topic: events
decode: {format: json, columns: [{name: id, path: /id, dtype: int64}]}
`

func TestAKafkaSpecHasDefaultsInRecords(t *testing.T) {
	s := mustParse(t, eventsSpec+"shuffle: {seed: 1}\n")
	k := s.Source.(*Spec)
	if k.Start != "earliest" || k.End != "latest" || k.MaxRecord != 16<<20 || len(k.Topics) != 1 {
		t.Errorf("the defaults are %+v", k)
	}
	if l := s.Lease; l.Initial != 10_000 || l.Min != 100 || l.Max != 10_000_000 || s.Shuffle.Block != 4096 {
		t.Errorf("%+v, block %d", l, s.Shuffle.Block)
	}
	if s := mustParse(t, eventsSpec+"lease: {initial: 500, min: 1}\n"); s.Lease.Initial != 500 || s.Lease.Min != 1 || s.Lease.Max != 10_000_000 {
		t.Errorf("%+v", s.Lease)
	}
	text, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	again, err := dataset.FromJSON(text)
	if err != nil || len(dataset.Diff(s, again)) > 0 {
		t.Errorf("%v %v", dataset.Diff(s, again), err)
	}
}

func TestALiveSpecHasDefaultsOfItsOwn(t *testing.T) {
	s := mustParse(t, strings.Replace(eventsSpec, "topic: events", "topic: events\n  end: never", 1))
	if l := s.Lease; !s.Live() || s.Source.(*Spec).Refresh != dataset.Duration(5*time.Second) || l.Initial != 10_000 || l.Min != 100 || l.Max != 1_000_000 {
		t.Errorf("%+v, %+v", s.Source, l)
	}
	if !slices.ContainsFunc(dataset.Diff(mustParse(t, eventsSpec), s), func(c dataset.Change) bool { return c.Field == "kafka.end" && !c.Compatible }) {
		t.Error("a piece may become endless")
	}
	text, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := dataset.FromJSON(text); err != nil || len(dataset.Diff(s, again)) > 0 {
		t.Errorf("%v %v", dataset.Diff(s, again), err)
	}
}

func TestBrokersRecordsHaveKeysHeadersAndTimes(t *testing.T) {
	columns := "[{name: k, path: $key, dtype: string}, {name: h, path: $header.trace, dtype: string}, {name: t, path: $timestamp, dtype: int64}, {name: d, path: $tombstone, dtype: bool}]"
	mustParse(t, strings.Replace(eventsSpec, "[{name: id, path: /id, dtype: int64}]", columns+", event_time: $timestamp", 1))
}

func TestMistakesInAKafkaSpecAreNamedWithTheirField(t *testing.T) {
	for name, c := range map[string]struct{ old, new, field, reason string }{
		"two sources":      {"name: events\n", "name: events\nfiles: {root: /a}\n", "kafka", "does not go with files"},
		"no broker":        {"  brokers: [kafka-1:9092]\n", "", "kafka.brokers", "must be given"},
		"no port":          {"kafka-1:9092", "kafka-1", "kafka.brokers[0]", "is not host:port"},
		"port 0":           {"kafka-1:9092", "kafka-1:0", "kafka.brokers[0]", "is not host:port"},
		"no topic":         {"  topic: events\n", "", "kafka.topic", "must be given"},
		"topic's name":     {"topic: events", "topic: a/b", "kafka.topics[0]", "is not a topic's name"},
		"topic twice":      {"topic: events", "topics: [a, a]", "kafka.topics[1]", "is named twice"},
		"start":            {"topic: events", "topic: events\n  start: yesterday", "kafka.start", "is neither earliest, latest nor a time"},
		"end earliest":     {"topic: events", "topic: events\n  end: earliest", "kafka.end", "leaves nothing to read"},
		"never, offsets":   {"topic: events", "topic: events\n  end: never\n  end_offsets: {0: 9}", "kafka.end_offsets", "does not go with end: never"},
		"never, passes":    {"topic: events", "topic: events\n  end: never\npasses: 2", "passes", "does not go with kafka.end: never"},
		"never, shuffle":   {"topic: events", "topic: events\n  end: never\nshuffle: {seed: 1}", "shuffle", "does not go with kafka.end: never"},
		"refresh":          {"topic: events", "topic: events\n  end: never\n  refresh: 1ms", "kafka.refresh", "is too often"},
		"refresh and end":  {"topic: events", "topic: events\n  refresh: 1s", "kafka.refresh", "is for input without an end"},
		"end":              {"topic: events", "topic: events\n  end: nevr", "kafka.end", "is neither earliest, latest nor a time"},
		"offset's key":     {"topic: events", "topic: events\n  start_offsets: {x: 1}", "kafka.start_offsets.x", "is not a partition"},
		"offset's topic":   {"topic: events", "topic: events\n  end_offsets: {other/1: 1}", "kafka.end_offsets.other/1", "is of no topic"},
		"negative offset":  {"topic: events", "topic: events\n  end_offsets: {1: -1}", "kafka.end_offsets.1", "is negative"},
		"end before start": {"topic: events", "topic: events\n  start_offsets: {0: 9}\n  end_offsets: {events/0: 5}", "kafka.end_offsets.events/0", "is before the start of that partition, 9"},
		"times":            {"topic: events", "topic: events\n  start: 2026-01-31T00:00:00Z\n  end: 2026-01-30T00:00:00Z", "kafka.end", "is before kafka.start"},
		"offsets' shape":   {"topic: events", "topic: events\n  end_offsets: [1]", "kafka.end_offsets", "must be a mapping"},
		"relative ca":      {"topic: events", "topic: events\n  tls: {ca: ca.pem}", "kafka.tls.ca", "is relative"},
		"cert alone":       {"topic: events", "topic: events\n  tls: {cert: /c.pem}", "kafka.tls", "go together"},
		"mechanism":        {"topic: events", "topic: events\n  sasl: {mechanism: gssapi, user: u, password_env: HEADRACE_P}", "kafka.sasl.mechanism", "is not known"},
		"no password":      {"topic: events", "topic: events\n  sasl: {mechanism: plain, user: u}", "kafka.sasl", "names no password, or two"},
		"password inline":  {"topic: events", "topic: events\n  sasl: {mechanism: plain, user: u, password: s}", "kafka.sasl.password", "no such field"},
		"other variable":   {"topic: events", "topic: events\n  sasl: {mechanism: plain, user: u, password_env: AWS_SECRET_ACCESS_KEY}", "kafka.sasl.password_env", "is not a variable that a spec may name"},
		"exact, never":     {"topic: events", "topic: events\n  end: never\nbit_exact: {virtual_ranks: 4}", "bit_exact", "does not go with kafka.end: never"},
		"exact, group":     {"topic: events", "topic: events\n  group: g\nbit_exact: {virtual_ranks: 4}", "bit_exact", "does not go with kafka.group"},
		"header line":      {"format: json", "format: csv, header: true", "decode.header", "is for files"},
	} {
		t.Run(name, func(t *testing.T) {
			text := strings.Replace(eventsSpec, c.old, c.new, 1)
			if name == "header line" {
				text = strings.Replace(text, "/id", "id", 1)
			}
			_, err := dataset.Parse([]byte(text), "")
			errs, ok := err.(dataset.SpecErrors)
			if !ok || errs[0].Field != c.field || !strings.Contains(errs[0].Reason, c.reason) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func TestHowToReachTheSameRecordsMayChange(t *testing.T) {
	old := mustParse(t, eventsSpec)
	for text, compatible := range map[string]bool{
		"brokers: [kafka-2:9092]": true, "brokers: [kafka-1:9092]\n  group: g": true, "brokers: [kafka-1:9092]\n  tls: {}": true,
		"brokers: [kafka-1:9092]\n  start: latest": false, "brokers: [kafka-1:9092]\n  end_offsets: {0: 5}": false,
	} {
		for _, c := range dataset.Diff(old, mustParse(t, strings.Replace(eventsSpec, "brokers: [kafka-1:9092]", text, 1))) {
			if c.Compatible != compatible {
				t.Errorf("%s: %v", text, c)
			}
		}
	}
}

func TestEveryExampleAndFieldOfTheKafkaPageIsTrue(t *testing.T) {
	text, err := os.ReadFile("../../docs/kafka.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(examples) < 5 {
		t.Fatalf("only %d examples", len(examples))
	}
	for _, e := range examples {
		if _, err := dataset.Parse(e[1], "kafka.md"); err != nil {
			t.Errorf("%v\n%s", err, e[1])
		}
	}
	s := mustParse(t, eventsSpec)
	k := s.Source.(*Spec)
	k.TLS = &dataset.TLS{CA: "/a", Cert: "/b", Key: "/c", ServerName: "d"}
	k.SASL = &SASL{"plain", "u", dataset.Password{Env: "HEADRACE_P", File: "/f"}}
	k.Refresh = 1
	k.Group, k.StartOffsets, k.EndOffsets = "g", map[string]int64{"0": 1}, map[string]int64{"0": 1}
	for field := range dataset.Leaves(s) {
		if rest, ok := strings.CutPrefix(field, "kafka."); ok {
			name := rest[strings.LastIndexByte(rest, '.')+1:]
			if name == "0" {
				name = strings.TrimSuffix(rest, ".0")
			}
			if !strings.Contains(string(text), "`"+name+"`") {
				t.Errorf("%s is not explained", field)
			}
		}
	}
	example, err := os.ReadFile("../../examples/kafka/events.yaml")
	if err != nil {
		t.Fatal(err)
	}
	mustParse(t, string(example))
}
