package rocketmq

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
)

func init() { dataset.Register(Kind) }

func parse(text string) (*dataset.Spec, error) {
	all, err := dataset.ParseAll([]byte(text), "spec.yaml")
	if err != nil {
		return nil, err
	}
	return all[0], nil
}

func TestEveryExampleAndFieldOfTheRocketMQPageIsTrue(t *testing.T) {
	text, err := os.ReadFile("../../docs/rocketmq.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(examples) < 5 {
		t.Fatalf("only %d examples found", len(examples))
	}
	for _, e := range examples {
		if _, err := parse(string(e[1])); err != nil {
			t.Errorf("%v\n%s", err, e[1])
		}
	}
	s, err := parse("name: d\nrocketmq: {name_servers: [\"mq:9876\"], topic: clicks, end: never}\ndecode: lines\n")
	if err != nil {
		t.Fatal(err)
	}
	k := s.Source.(*Spec)
	k.Connection, k.Brokers, k.Tags, k.Group = "c", []string{"b"}, []string{"t"}, "g"
	k.StartOffsets, k.EndOffsets = map[string]int64{"0": 1}, map[string]int64{"0": 1}
	k.TLS = &dataset.TLS{CA: "/a", Cert: "/b", Key: "/c", ServerName: "d"}
	k.ACL = &ACL{AccessKey: "a", SecretKeyEnv: "HEADRACE_K", SecretKeyFile: "/k"}
	_, fields, _ := strings.Cut(string(text), "\n## Fields\n")
	for field := range dataset.Leaves(s) {
		if rest, ok := strings.CutPrefix(field, "rocketmq."); ok {
			name := strings.TrimSuffix(rest, ".0")
			if name = name[strings.LastIndexByte(name, '.')+1:]; !strings.Contains(fields, "`"+name+"`") {
				t.Errorf("%s is not explained", field)
			}
		}
	}
}

func TestAWrongSpecIsToldByFieldAndReason(t *testing.T) {
	const good = "name: d\nrocketmq: {name_servers: [\"mq:9876\"], topic: clicks}\ndecode: lines\n"
	if _, err := parse(good); err != nil {
		t.Fatal(err)
	}
	for change, want := range map[string]string{
		"name_servers: [\"mq\"]":                                 "rocketmq.name_servers[0]",
		"name_servers: []":                                       "rocketmq.name_servers",
		"name_servers: [\"mq:9876\"], end: earliest":             "rocketmq.end",
		"name_servers: [\"mq:9876\"], start: soon":               "rocketmq.start",
		"name_servers: [\"mq:9876\"], refresh: 1s":               "rocketmq.refresh",
		"name_servers: [\"mq:9876\"], tags: [\"a||b\"]":          "rocketmq.tags[0]",
		"name_servers: [\"mq:9876\"], start_offsets: {b/x: 1}":   "rocketmq.start_offsets.b/x",
		"name_servers: [\"mq:9876\"], start_offsets: {t/b/1: 1}": "rocketmq.start_offsets.t/b/1",
		"name_servers: [\"mq:9876\"], acl: {access_key: k}":      "rocketmq.acl",
		"name_servers: [\"mq:9876\"], group: \"a b\"":            "rocketmq.group",
	} {
		if _, err := parse(strings.Replace(good, "name_servers: [\"mq:9876\"]", change, 1)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got the error %v, want one with %q", change, err, want)
		}
	}
}

func TestKeysAndPropertiesAreReadOnlyWhereAColumnNeedsThem(t *testing.T) {
	for columns, want := range map[string]bool{
		"{name: v, path: $value, dtype: bytes}":        true,
		"{name: k, path: $key, dtype: string}":         false,
		"{name: k, path: $header.TAGS, dtype: string}": false,
	} {
		spec, err := parse("name: d\nrocketmq: {name_servers: [\"mq:9876\"], topic: clicks}\ndecode: {format: raw, columns: [" + columns + "]}\n")
		if err != nil {
			t.Fatal(err)
		}
		if got := bare(spec); got != want {
			t.Errorf("%s: %v", columns, got)
		}
	}
}
