package s3

import (
	"strings"
	"testing"
)

func TestAURLNamesABucketAndAPrefix(t *testing.T) {
	for text, want := range map[string][2]string{
		"s3://lake": {"lake", ""}, "s3://lake/": {"lake", ""}, "s3://my.lake-1/a/b/": {"my.lake-1", "a/b"},
	} {
		if b, p, err := ParseURL(text); err != nil || b != want[0] || p != want[1] {
			t.Errorf("%s: %q, %q, %v", text, b, p, err)
		}
	}
	for _, text := range []string{"", "lake", "s3:/lake", "s3://", "s3://ab/x", "s3://Lake/x", "s3://la_ke/x", "s3://lake/../x", "https://lake/x"} {
		if _, _, err := ParseURL(text); err == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

func TestAConnectionOpensOnlyWhatItAllows(t *testing.T) {
	c := Config{Endpoint: "https://minio:9000", AccessKey: "a", SecretKey: "b", Prefixes: []string{"s3://lake/clicks/", "s3://other"}}
	for text, want := range map[string]bool{
		"s3://lake/clicks": true, "s3://lake/clicks/2026": true, "s3://other/x": true,
		"s3://lake": false, "s3://lake/clicks2": false, "s3://otherlake": false,
	} {
		if _, err := Open(c, text); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestClearTextStaysOnThisMachine(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://127.0.0.1:9000": "", "http://localhost:9000": "", "http://[::1]:9000": "", "https://minio:9000": "",
		"http://minio:9000": "is not encrypted", "minio:9000": "must be https://HOST", "https://u:p@minio": "must be https://HOST", "https://minio/path": "must be https://HOST",
	} {
		_, err := Open(Config{Endpoint: endpoint, AccessKey: "a", SecretKey: "b"}, "s3://lake")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", endpoint, err)
		}
	}
	if _, err := Open(Config{Endpoint: "http://minio:9000", ClearText: true, AccessKey: "a", SecretKey: "b"}, "s3://lake"); err != nil {
		t.Error(err)
	}
}
