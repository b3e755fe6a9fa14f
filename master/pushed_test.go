package master

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/access"
	"github.com/headrace/headrace/internal/chunk"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/master/landing"
	"github.com/headrace/headrace/sources"
	adapter "github.com/headrace/headrace/sources/landing"
)

const pushedSpec = `name: clicks
landing: {}
decode: {format: lines, columns: [{name: line, path: $value, dtype: string}]}
`

// pushed is a master with a dataset of pushed records, and a file with a token for each role.
type pushed struct {
	*running
	files, tokens map[access.Roles]string
}

func startPushed(t *testing.T) *pushed {
	t.Helper()
	dataset.Register(adapter.Kind)
	dir := t.TempDir()
	book := &access.Book{State: dir}
	p := &pushed{files: map[access.Roles]string{}, tokens: map[access.Roles]string{}}
	for role, token := range map[access.Roles]string{access.Pusher: "pusher", access.Viewer: "viewer", access.Agent: "agent"} {
		p.files[role] = filepath.Join(t.TempDir(), "token")
		p.setToken(t, role, strings.Repeat(token+"-", 8))
		book.Files = append(book.Files, access.Entry{Roles: role, Value: p.files[role]})
	}
	p.running = start(t, Config{State: dir, HTTP: "127.0.0.1:0", Access: book, OpenSource: func(_ context.Context, spec *dataset.Spec, known []sources.Segment) (sources.Source, error) {
		return adapter.Open(adapter.Options{Dataset: spec.Name, Partitions: 1, Known: known, Chunks: &landing.Local{At: landing.Folder(dir)}}), nil
	}})
	p.apply(pushedSpec)
	return p
}

// setToken makes a token the only one of a role.
func (p *pushed) setToken(t *testing.T, role access.Roles, token string) {
	t.Helper()
	if err := os.WriteFile(p.files[role], []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p.tokens[role] = token
}

type landed struct {
	Already bool
	Records int
}

// post posts to a page of the dataset. An empty token is not sent.
func (p *pushed) post(t *testing.T, page, token, body string) (code int, says string, got landed) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+p.m.HTTP()+"/v1/datasets/clicks/"+page, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Idempotency-Key", "rows-1")
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode == http.StatusOK {
		if err := json.Unmarshal(text, &got); err != nil {
			t.Fatal(err)
		}
	}
	return answer.StatusCode, string(text), got
}

// A token of the role pusher is enough to post records to a master's HTTP port, as lines or as
// chunks. A role without that right is refused, and so is a token that was removed from its file.
func TestRecordsArePostedWithATokenOfTheRolePusher(t *testing.T) {
	p := startPushed(t)
	var b chunk.Builder
	b.Add(chunk.Record{Value: []byte(`{"user": 1}`)})
	b.Add(chunk.Record{Value: []byte(`{"user": 2}`)})
	const head = `{"locators": [], "partitions": [0]}`
	for i, c := range []struct{ page, body string }{
		{"records", `{"user": 1}` + "\n" + `{"user": 2}` + "\n"},
		{fmt.Sprintf("transactions/rows-2/land?head=%d", len(head)), head + string(b.Chunk())},
	} {
		stale := p.tokens[access.Pusher]
		p.setToken(t, access.Pusher, strings.Repeat("pusher-", 8)+c.page[:4])
		for token, want := range map[string]int{"": http.StatusUnauthorized, "guess": http.StatusUnauthorized, stale: http.StatusUnauthorized,
			p.tokens[access.Viewer]: http.StatusForbidden, p.tokens[access.Agent]: http.StatusForbidden} {
			if code, says, _ := p.post(t, c.page, token, c.body); code != want || !strings.Contains(says, "pusher") {
				t.Errorf("page %s with token %q answered %d %s, want %d", c.page, token, code, says, want)
			}
		}
		for again := range 3 {
			code, says, got := p.post(t, c.page, p.tokens[access.Pusher], c.body)
			if code != http.StatusOK || got.Records != 2 || got.Already != (again > 0) {
				t.Fatalf("page %s, request %d, answered %d %s, want 2 records", c.page, again, code, says)
			}
		}
		p.until("its records", func(d *headracev1.Dataset) bool { return d.Counts.Listed == int64(2*(i+1)) })
	}
}
