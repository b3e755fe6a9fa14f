package pulsar

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

const (
	adminWithin = 15 * time.Second // the time for an answer of the admin API
	adminMost   = 64 << 20         // bytes of an answer
)

// admin calls Pulsar's admin API over HTTP.
type admin struct {
	base string // http://host:port
	most int64  // bytes of an answer
	http *http.Client
	tr   *http.Transport
}

func (a *admin) close() { a.tr.CloseIdleConnections() }

func (a *admin) where() string { return "Pulsar's admin API at " + a.base }

// get sends a GET and fills into from the JSON of the answer.
func (a *admin) get(ctx context.Context, path string, into any) error {
	return a.call(ctx, http.MethodGet, path, nil, into)
}

func (a *admin) call(ctx context.Context, method, path string, body, into any) error {
	var send io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		send = bytes.NewReader(data)
	}
	res, err := a.do(ctx, method, path, send)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, a.most+1))
	if err != nil {
		return explain(ctx, a.where(), err)
	}
	if int64(len(data)) > a.most {
		return fmt.Errorf("%s: %s %s: the answer has more than %d bytes, and no topic's is that large: check pulsar.admin; if it is right, look with pulsar-admin which ledgers or subscriptions the topic has too many of",
			a.where(), method, path, a.most)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(data, into); err != nil {
		return temporary(fmt.Errorf("%s: %s %s: the answer cannot be read: %w", a.where(), method, path, err))
	}
	return nil
}

// do returns an answer with status 2xx. The caller closes its body. Other statuses are
// errors.
func (a *admin) do(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	if !strings.HasPrefix(path, "/") {
		path = "/admin/v2/" + path
	}
	req, err := http.NewRequestWithContext(ctx, method, a.base+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "application/json, */*")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := a.http.Do(req)
	if err != nil {
		return nil, explain(ctx, a.where(), err)
	}
	if res.StatusCode/100 == 2 {
		return res, nil
	}
	defer res.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
	return nil, answered(a.where(), method+" "+path, res.StatusCode, reasonIn(said))
}

// reasonIn returns the reason in the answer of an error: JSON with a reason, or a page.
func reasonIn(said []byte) string {
	var why struct{ Reason string }
	if json.Unmarshal(said, &why) == nil && why.Reason != "" {
		return why.Reason
	}
	text := string(said)
	if i := strings.Index(text, "<th>MESSAGE:</th><td>"); i >= 0 {
		text, _, _ = strings.Cut(text[i+len("<th>MESSAGE:</th><td>"):], "<")
	}
	return strings.TrimSpace(text)
}

// messageAt is a place in a topic in the form of the admin API.
type messageAt struct {
	Ledger    int64 `json:"ledgerId"`
	Entry     int64 `json:"entryId"`
	Partition int   `json:"partitionIndex"`
}

func (m messageAt) String() string { return fmt.Sprintf("%d:%d", m.Ledger, m.Entry) }

// ledgerInfo is one ledger of a topic. The open ledger shows 0 entries.
type ledgerInfo struct {
	Ledger  int64 `json:"ledgerId"`
	Entries int64 `json:"entries"`
	Size    int64 `json:"size"`
}

type cursorInfo struct {
	MarkDelete string `json:"markDeletePosition"`
}

// internalStats is the layout of a topic now.
type internalStats struct {
	LastConfirmed string                `json:"lastConfirmedEntry"`
	CurrentSize   int64                 `json:"currentLedgerSize"`
	Ledgers       []ledgerInfo          `json:"ledgers"`
	Cursors       map[string]cursorInfo `json:"cursors"`
}

// infoOf is a topic's metadata. Pulsar has it also while no broker has loaded the topic.
type infoOf struct {
	Created string `json:"creationDate"`
}

func (i infoOf) createdMs() (int64, error) {
	t, err := time.Parse("2006-01-02T15:04:05.999Z07:00", i.Created)
	if err != nil {
		return 0, fmt.Errorf("pulsar: when the topic was made is %q: %w", i.Created, err)
	}
	return t.UnixMilli(), nil
}

func parsePlace(s string) (m messageAt, err error) {
	if _, err = fmt.Sscanf(s, "%d:%d", &m.Ledger, &m.Entry); err != nil {
		err = fmt.Errorf("pulsar: position %q: %w", s, err)
	}
	return m, err
}
