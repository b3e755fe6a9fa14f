package connection

import (
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/sources/files"
)

const lakes = `
lake: {s3: {endpoint: "https://minio:9000", access_key: trainer, secret_key_env: HEADRACE_LAKE, prefixes: ["s3://lake/clicks"]}}
open: {s3: {endpoint: "http://127.0.0.1:9000", anonymous: true}}
aws: {s3: }
k: {kafka: {brokers: [kafka-1:9093]}}
`

func TestABucketIsOpenedAsTheOperatorAllows(t *testing.T) {
	t.Setenv("HEADRACE_LAKE", "very secret")
	b, err := book(t, lakes)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ connection, url, allowed, want string }{
		{"lake", "s3://lake/clicks/2026", "", ""},
		{"lake", "s3://lake/other", "", "is none of those that the connection allows"},
		{"open", "s3://any", "", ""},
		{"aws", "s3://any", "", ""},
		{"lak", "s3://lake/clicks", "", "no connection lak is registered here"},
		{"k", "s3://lake/clicks", "", "is one to kafka"},
		{"", "s3://lake/clicks", "", "start them with --allow-root s3://lake/clicks"},
		{"", "s3://lake/clicks", "/", "--allow-root"},
		{"", "s3://lake/clicks", "s3://lake/click", "--allow-root"},
		{"", "s3://lake/clicks", "s3://lake", ""},
	} {
		_, err := b.Objects(c.connection, c.url, []string{c.allowed})
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "very secret")) {
			t.Errorf("%s %s with %q: %v", c.connection, c.url, c.allowed, err)
		}
	}
	t.Setenv("HEADRACE_LAKE", "")
	if _, err := b.Objects("lake", "s3://lake/clicks", nil); err == nil || !strings.Contains(err.Error(), "HEADRACE_LAKE is not set here") {
		t.Errorf("got the error %v, want one with %q", err, "HEADRACE_LAKE is not set here")
	}
}

func TestMistakesInConnectionsToS3AreNamed(t *testing.T) {
	for text, want := range map[string]string{
		"x: {s3: {endpont: a}}":                    "s3.endpont: no such field: did you mean endpoint",
		"x: {s3: {endpoint: a}}":                   "s3.endpoint: the endpoint of S3 must be https://HOST",
		`x: {s3: {endpoint: "http://minio:9000"}}`: "is not encrypted",
		"x: {s3: {access_key: a}}":                 "secret_key_env",
		"x: {s3: {access_key: a, secret_key: b}}":  "s3.secret_key: no such field",
		"x: {s3: {secret_key_env: HEADRACE_A}}":    "go with access_key",
		"x: {s3: {profile: a, anonymous: true}}":   "give only one of",
		"x: {s3: {prefixes: [lake]}}":              "s3.prefixes",
		"x: {s3: {path_style: perhaps}}":           "s3: ",
		"x: {s3: [a]}":                             "must be a mapping",
		"x: {s3: {}, kafka: {brokers: [a:1]}}":     "a connection is of one kind",
	} {
		if _, err := book(t, text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "connections: x: headrace.yaml:1") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestARootOfS3IsChecked(t *testing.T) {
	dataset.Register(files.Kind)
	for part, want := range map[string]string{
		"files: {root: s3://lake/clicks, connection: lake}": "",
		"files: {root: s3://lake}":                          "",
		"files: {root: s3://lake/}":                         "is not s3://BUCKET/PREFIX",
		"files: {root: s3:///x}":                            "is not s3://BUCKET/PREFIX",
		"files: {root: s3://lake/../x}":                     "is not s3://BUCKET/PREFIX",
		"files: {root: gs://lake/x}":                        "is no place that files are read from",
		"files: {root: /data, connection: lake}":            "is for files on S3",
	} {
		if _, err := parse(part); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", part, err)
		}
	}
}
