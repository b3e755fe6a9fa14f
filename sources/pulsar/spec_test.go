package pulsar

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/dataset"
)

func init() { dataset.Register(Kind) }

const clicksSpec = `name: events
pulsar:
  service: pulsar://broker:6650
  admin: http://broker:8080
  topic: clicks
decode: lines
`

func parsed(t *testing.T, text string) *dataset.Spec {
	t.Helper()
	s, err := dataset.Parse([]byte(text), "events.yaml")
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s
}

// with returns clicksSpec with a part replaced.
func with(old, now string) string { return strings.Replace(clicksSpec, old, now, 1) }

func TestAPulsarSpecHasDefaultsAndIsTheSameAfterItsJSON(t *testing.T) {
	for _, text := range []string{clicksSpec, with("topic: clicks", "topic: clicks\n  end: never"),
		with("topic: clicks", "topics: [clicks, a/b/views]\n  start_ids: {3: '12:500', clicks-partition-1: '1:2:3', a/b/views: '5:0'}\n  auth: {oauth2: {issuer: 'https://i', client_id: c, key_env: HEADRACE_K}}")} {
		s := parsed(t, text)
		k := s.Source.(*Spec)
		if k.Start != "earliest" || k.MaxRecord != 16<<20 || s.Live() != strings.Contains(text, "never") || !s.Live() && k.End != "latest" || s.Live() && k.Refresh != dataset.Duration(5*time.Second) {
			t.Errorf("the defaults are %+v", k)
		}
		if name := subscriptionOf(k, s.Name); name != "headrace-events" {
			t.Errorf("its subscription is %s", name)
		}
		data, err := s.JSON()
		if err != nil {
			t.Fatal(err)
		}
		again, err := dataset.FromJSON(data)
		if err != nil || len(dataset.Diff(s, again)) > 0 {
			t.Errorf("%v %v", dataset.Diff(s, again), err)
		}
	}
}

func TestMistakesInAPulsarSpecAreNamedWithTheirField(t *testing.T) {
	for name, c := range map[string]struct{ old, now, field, reason string }{
		"no service":       {"  service: pulsar://broker:6650\n", "", "pulsar.service", "must be given"},
		"service's scheme": {"pulsar://broker:6650", "http://broker:6650", "pulsar.service", "is not an address"},
		"service's login":  {"pulsar://broker:6650", "pulsar://me:secret@broker:6650", "pulsar.service", "is not an address"},
		"no admin":         {"  admin: http://broker:8080\n", "", "pulsar.admin", "must be given"},
		"admin's scheme":   {"http://broker:8080", "pulsar://broker:8080", "pulsar.admin", "is not an address"},
		"no topic":         {"  topic: clicks\n", "", "pulsar.topic", "must be given"},
		"topic's name":     {"topic: clicks", "topic: a/b", "pulsar.topics[0]", "is not a persistent topic's name"},
		"not persistent":   {"topic: clicks", "topic: non-persistent://public/default/clicks", "pulsar.topics[0]", "is not a persistent topic's name"},
		"topic twice":      {"topic: clicks", "topics: [clicks, 'persistent://public/default/clicks']", "pulsar.topics[1]", "is named twice"},
		"start":            {"topic: clicks", "topic: clicks\n  start: yesterday", "pulsar.start", "is neither earliest, latest nor a time"},
		"end":              {"topic: clicks", "topic: clicks\n  end: nevr", "pulsar.end", "is neither earliest, latest nor a time"},
		"end earliest":     {"topic: clicks", "topic: clicks\n  end: earliest", "pulsar.end", "leaves nothing to read"},
		"times":            {"topic: clicks", "topic: clicks\n  start: 2026-01-31T00:00:00Z\n  end: 2026-01-30T00:00:00Z", "pulsar.end", "is before pulsar.start"},
		"end ids":          {"topic: clicks", "topic: clicks\n  end_ids: {0: '1:2'}", "pulsar.end_ids", "no such field"},
		"an id":            {"topic: clicks", "topic: clicks\n  start_ids: {0: '12'}", "pulsar.start_ids.0", "is not a message id"},
		"ids' shape":       {"topic: clicks", "topic: clicks\n  start_ids: ['1:2']", "pulsar.start_ids", "must be a mapping"},
		"an id's topic":    {"topic: clicks", "topic: clicks\n  start_ids: {views-partition-0: '1:2'}", "pulsar.start_ids.views-partition-0", "is not a partition of a topic that is read here"},
		"an id's number":   {"topic: clicks", "topic: clicks\n  start_ids: {clicks-partition-01: '1:2'}", "pulsar.start_ids.clicks-partition-01", "is not a partition"},
		"refresh":          {"topic: clicks", "topic: clicks\n  end: never\n  refresh: 1ms", "pulsar.refresh", "is too often"},
		"refresh and end":  {"topic: clicks", "topic: clicks\n  refresh: 1s", "pulsar.refresh", "is for input without an end"},
		"subscription":     {"topic: clicks", "topic: clicks\n  subscription: a/b", "pulsar.subscription", "is not a subscription's name"},
		"max_record":       {"topic: clicks", "topic: clicks\n  max_record: 0B", "pulsar.max_record", "must be from 1"},
		"relative ca":      {"topic: clicks", "topic: clicks\n  tls: {ca: ca.pem}", "pulsar.tls.ca", "is relative"},
		"cert alone":       {"topic: clicks", "topic: clicks\n  tls: {cert: /c.pem}", "pulsar.tls", "go together"},
		"no token":         {"topic: clicks", "topic: clicks\n  auth: {}", "pulsar.auth", "names no token, or two"},
		"token inline":     {"topic: clicks", "topic: clicks\n  auth: {token: s}", "pulsar.auth.token", "no such field"},
		"other variable":   {"topic: clicks", "topic: clicks\n  auth: {token_env: AWS_SECRET_ACCESS_KEY}", "pulsar.auth.token_env", "is not a variable that a spec may name"},
		"two logins":       {"topic: clicks", "topic: clicks\n  auth: {token_env: HEADRACE_T, oauth2: {issuer: 'https://i', key_env: HEADRACE_K}}", "pulsar.auth", "names a token and oauth2"},
		"no issuer":        {"topic: clicks", "topic: clicks\n  auth: {oauth2: {key_env: HEADRACE_K}}", "pulsar.auth.oauth2.issuer", "must be given"},
		"no key":           {"topic: clicks", "topic: clicks\n  auth: {oauth2: {issuer: 'https://i'}}", "pulsar.auth.oauth2", "names no key, or two"},
		"bit_exact":        {"decode: lines", "decode: lines\nbit_exact: {virtual_ranks: 4}", "bit_exact", "does not go with pulsar"},
		"never, passes":    {"topic: clicks", "topic: clicks\n  end: never\npasses: 2", "passes", "does not go with pulsar.end: never"},
		"never, shuffle":   {"topic: clicks", "topic: clicks\n  end: never\nshuffle: {seed: 1}", "shuffle", "does not go with pulsar.end: never"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := dataset.Parse([]byte(with(c.old, c.now)), "")
			errs, ok := err.(dataset.SpecErrors)
			if !ok || !slices.ContainsFunc(errs, func(e *dataset.SpecError) bool { return e.Field == c.field && strings.Contains(e.Reason, c.reason) }) {
				t.Errorf("it says %v", err)
			}
		})
	}
}

func TestHowToReachTheSameMessagesMayChange(t *testing.T) {
	old := parsed(t, clicksSpec)
	for text, compatible := range map[string]bool{
		"service: pulsar://other:6650": true, "service: pulsar://broker:6650\n  subscription: s": true, "service: pulsar://broker:6650\n  tls: {ca: /ca.pem}": true,
		"service: pulsar://broker:6650\n  auth: {token_env: HEADRACE_T}": true,
		"service: pulsar://broker:6650\n  start: latest":                 false, "service: pulsar://broker:6650\n  start_ids: {0: '5:0'}": false,
		"service: pulsar://broker:6650\n  end: never": false,
	} {
		changes := dataset.Diff(old, parsed(t, with("service: pulsar://broker:6650", text)))
		if !compatible {
			changes = slices.DeleteFunc(changes, func(c dataset.Change) bool {
				return !strings.HasPrefix(c.Field, "pulsar.start") && c.Field != "pulsar.end"
			})
		}
		if len(changes) == 0 {
			t.Errorf("%s changes nothing", text)
		}
		for _, c := range changes {
			if c.Compatible != compatible {
				t.Errorf("%s: %v", text, c)
			}
		}
	}
}

func TestEveryExampleAndFieldOfThePulsarPageIsTrue(t *testing.T) {
	text, err := os.ReadFile("../../docs/pulsar.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(text, -1)
	if len(examples) < 4 {
		t.Fatalf("only %d examples", len(examples))
	}
	for _, e := range examples {
		if _, err := dataset.Parse(e[1], "pulsar.md"); err != nil {
			t.Errorf("%v\n%s", err, e[1])
		}
	}
	s := parsed(t, clicksSpec)
	k := s.Source.(*Spec)
	k.Connection, k.Subscription, k.Refresh, k.StartIDs = "c", "s", 1, map[string]string{"0": "1:2"}
	k.TLS = &dataset.TLS{CA: "/a", Cert: "/b", Key: "/c", ServerName: "d"}
	k.Auth = &Auth{TokenEnv: "HEADRACE_T", TokenFile: "/t", OAuth2: &OAuth2{Issuer: "i", ClientID: "c", Audience: "a", Scope: "s", CA: "/c", KeyEnv: "HEADRACE_K", KeyFile: "/k"}}
	for field := range dataset.Leaves(s) {
		rest, ok := strings.CutPrefix(field, "pulsar.")
		if !ok {
			continue
		}
		name := rest[strings.LastIndexByte(rest, '.')+1:]
		if name == "0" {
			name = strings.TrimSuffix(rest, ".0")
		}
		if !regexp.MustCompile("`[^`\n]*\\b" + name + "\\b[^`\n]*`").Match(text) {
			t.Errorf("%s is not explained", field)
		}
	}
}
