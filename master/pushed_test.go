package master

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/access"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/master/landing"
	"github.com/headrace/headrace/sources"
	adapter "github.com/headrace/headrace/sources/landing"
)

const pushedSpec = `name: clicks
landing: {}
decode: {format: lines, columns: [{name: line, path: $value, dtype: string}]}
`

// Lines are posted to the HTTP port of a master: a token of the role pusher is enough, and no
// other role but those that have it may.
func TestLinesArePostedWithATokenOfTheRolePusher(t *testing.T) {
	dataset.Register(adapter.Kind)
	dir := t.TempDir()
	book := &access.Book{State: dir}
	tokens := map[access.Roles]string{}
	for role, token := range map[access.Roles]string{access.Pusher: "pusher", access.Viewer: "viewer", access.Agent: "agent"} {
		token = strings.Repeat(token+"-", 8)
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		book.Files = append(book.Files, access.Entry{Roles: role, Value: file})
		tokens[role] = token
	}
	r := start(t, Config{State: dir, HTTP: "127.0.0.1:0", Access: book, OpenSource: func(_ context.Context, spec *dataset.Spec, known []sources.Segment) (sources.Source, error) {
		return adapter.Open(adapter.Options{Dataset: spec.Name, Partitions: 1, Known: known, Chunks: &landing.Local{At: landing.Folder(dir)}}), nil
	}})
	r.apply(pushedSpec)

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	post := func(token, body string) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+r.m.HTTP()+"/v1/datasets/clicks/records", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Idempotency-Key", "rows-1")
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	const rows = `{"user": 1}` + "\n" + `{"user": 2}` + "\n"
	for token, want := range map[string]int{"": http.StatusUnauthorized, "guess": http.StatusUnauthorized,
		tokens[access.Viewer]: http.StatusForbidden, tokens[access.Agent]: http.StatusForbidden} {
		if code, says := post(token, rows); code != want || !strings.Contains(says, "pusher") {
			t.Errorf("token %q: %d %s", token, code, says)
		}
	}
	for again := range 3 {
		code, says := post(tokens[access.Pusher], rows)
		var got struct {
			Already bool
			Records int
		}
		if err := json.Unmarshal([]byte(says), &got); err != nil || code != http.StatusOK || got.Records != 2 || got.Already != (again > 0) {
			t.Fatalf("request %d: %d %s", again, code, says)
		}
	}
	r.until("two pushed records", func(d *headracev1.Dataset) bool { return d.Counts.Listed == 2 })
}
