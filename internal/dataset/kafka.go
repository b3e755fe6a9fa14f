package dataset

import (
	"fmt"
	"maps"
	"net"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

var (
	topicName  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,249}$`)
	secretName = regexp.MustCompile(`^` + SecretPrefix + `[A-Z0-9_]+$`)
	mechanisms = []string{"plain", "scram-sha-256", "scram-sha-512"}
)

func (r *reader) kafka(n *yaml.Node, path string, s *Spec) {
	k := defaultKafka()
	s.Kafka = &k
	r.mapping(n, path, []field{
		{"brokers", r.texts(&k.Brokers)},
		{"topic", r.texts(&k.Topics)},
		{"topics", r.texts(&k.Topics)},
		{"start", r.text(&k.Start)},
		{"start_offsets", r.offsets(&k.StartOffsets)},
		{"end", r.text(&k.End)},
		{"end_offsets", r.offsets(&k.EndOffsets)},
		{"refresh", parsed(r, &k.Refresh, ParseDuration)},
		{"group", r.text(&k.Group)},
		{"max_record", parsed(r, &k.MaxRecord, ParseSize)},
		{"tls", func(n *yaml.Node, path string) {
			k.TLS = &KafkaTLS{}
			r.mapping(n, path, []field{{"ca", r.text(&k.TLS.CA)}, {"cert", r.text(&k.TLS.Cert)},
				{"key", r.text(&k.TLS.Key)}, {"server_name", r.text(&k.TLS.ServerName)}})
		}},
		{"sasl", func(n *yaml.Node, path string) {
			k.SASL = &KafkaSASL{}
			r.mapping(n, path, []field{{"mechanism", r.text(&k.SASL.Mechanism)}, {"user", r.text(&k.SASL.User)},
				{"password_env", r.text(&k.SASL.PasswordEnv)}, {"password_file", r.text(&k.SASL.PasswordFile)}})
		}},
	})
}

// offsets reads a mapping from partitions to offsets.
func (r *reader) offsets(into *map[string]int64) func(*yaml.Node, string) {
	return func(n *yaml.Node, path string) {
		if n.Kind != yaml.MappingNode {
			r.fail(n, path, "is "+kindName(n)+", and must be a mapping from partitions to offsets", "as in {0: 1500, 1: 900}")
			return
		}
		all := map[string]int64{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := deref(n.Content[i]).Value
			var v int64
			parsed(r, &v, parseInt64)(deref(n.Content[i+1]), join(path, key))
			all[key] = v
		}
		*into = all
	}
}

func (c *check) kafkaSpec(s *Spec) {
	k := s.Kafka
	if len(k.Brokers) == 0 {
		c.fail("kafka.brokers", "", "must be given: where the cluster is", "as in brokers: [kafka-1:9092, kafka-2:9092]")
	}
	for i, b := range k.Brokers {
		host, port, err := net.SplitHostPort(b)
		if n, bad := strconv.ParseUint(port, 10, 16); err != nil || bad != nil || host == "" || n == 0 {
			c.fail(fmt.Sprintf("kafka.brokers[%d]", i), b, "is not host:port", "as in kafka-1:9092")
		}
	}
	if len(k.Topics) == 0 {
		c.fail("kafka.topic", "", "must be given: what to read", "")
	}
	for i, t := range k.Topics {
		at := fmt.Sprintf("kafka.topics[%d]", i)
		if !topicName.MatchString(t) || t == "." || t == ".." {
			c.fail(at, t, "is not a topic's name", "letters, digits, '.', '_' and '-', 249 at most")
		} else if slices.Index(k.Topics, t) < i {
			c.fail(at, t, "is named twice", "")
		}
	}
	c.kafkaEnd("kafka.start", k.Start, k.StartOffsets, k.Topics)
	if k.End == endNever {
		c.live(s)
	} else {
		c.kafkaEnd("kafka.end", k.End, k.EndOffsets, k.Topics)
		if k.Refresh != 0 {
			c.fail("kafka.refresh", k.Refresh.String(), "is for input without an end", "remove it, or set end: never")
		}
	}
	if k.MaxRecord < 1 || k.MaxRecord > maxRecord {
		c.fail("kafka.max_record", k.MaxRecord.String(), "must be from 1 to "+maxRecord.String(), "")
	}
	if k.TLS != nil {
		c.kafkaTLS(k.TLS)
	}
	if k.SASL != nil {
		c.kafkaSASL(k.SASL)
	}
}

// live checks what input without an end does not go with.
func (c *check) live(s *Spec) {
	if len(s.Kafka.EndOffsets) > 0 {
		c.fail("kafka.end_offsets", "", "does not go with end: never", "remove one of them")
	}
	if s.Passes > 1 {
		c.fail("passes", fmt.Sprint(s.Passes), "does not go with end: never: what has no end is read once", "remove one of them")
	}
	if s.Shuffle != nil {
		c.fail("shuffle", "", "does not go with end: never: a permutation needs all of the input", "remove one of them")
	}
	if s.Kafka.Refresh < leastRefresh {
		c.fail("kafka.refresh", s.Kafka.Refresh.String(), "is too often", "use "+leastRefresh.String()+" or more; the default is "+defaultRefresh.String())
	}
}

func (c *check) kafkaEnd(field, text string, offsets map[string]int64, topics []string) {
	hint := ""
	if field == "kafka.end" {
		hint = "; never reads on as records come"
	}
	if text != "earliest" && text != "latest" {
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			c.fail(field, text, "is neither earliest, latest nor a time", "as in 2026-01-31T08:00:00Z; offsets go to "+field+"_offsets"+hint)
		}
	} else if field == "kafka.end" && text == "earliest" {
		c.fail(field, text, "leaves nothing to read", "use latest or a time")
	}
	for _, key := range slices.Sorted(maps.Keys(offsets)) {
		at := field + "_offsets." + key
		topic, number, named := strings.Cut(key, "/")
		if !named {
			number = topic
		} else if !slices.Contains(topics, topic) {
			c.fail(at, "", "is of no topic that is read here", oneOf(topics...))
			continue
		}
		if n, err := strconv.ParseInt(number, 10, 32); err != nil || n < 0 || strconv.FormatInt(n, 10) != number {
			c.fail(at, "", "is not a partition", "write its number, as in 3, or with its topic, as in clicks/3")
		} else if offsets[key] < 0 {
			c.fail(at, strconv.FormatInt(offsets[key], 10), "is negative", "")
		}
	}
}

func (c *check) kafkaTLS(t *KafkaTLS) {
	for _, f := range []struct{ name, value string }{{"ca", t.CA}, {"cert", t.Cert}, {"key", t.Key}} {
		if f.value != "" && !path.IsAbs(f.value) {
			c.fail("kafka.tls."+f.name, f.value, "is relative", "master and agents read it: write an absolute path")
		}
	}
	if (t.Cert == "") != (t.Key == "") {
		c.fail("kafka.tls", "", "cert and key go together", "")
	}
}

func (c *check) kafkaSASL(s *KafkaSASL) {
	c.among("kafka.sasl.mechanism", s.Mechanism, mechanisms...)
	if s.User == "" {
		c.fail("kafka.sasl.user", "", "must be given", "")
	}
	switch {
	case (s.PasswordEnv == "") == (s.PasswordFile == ""):
		c.fail("kafka.sasl", "", "names no password, or two", "give one of password_env and password_file; a spec never holds the password")
	case s.PasswordEnv != "" && !secretName.MatchString(s.PasswordEnv):
		c.fail("kafka.sasl.password_env", s.PasswordEnv, "is not a variable that a spec may name", "its name begins with "+SecretPrefix+", in capitals")
	case s.PasswordFile != "" && !path.IsAbs(s.PasswordFile):
		c.fail("kafka.sasl.password_file", s.PasswordFile, "is relative", "master and agents read it: write an absolute path")
	}
}
