package landing

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func (s *Service) post(t *testing.T, path, key, body string) (int, answer) {
	t.Helper()
	m := http.NewServeMux()
	for pattern, h := range s.Pages() {
		m.Handle(pattern, h)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	w := httptest.NewRecorder()
	m.ServeHTTP(w, r)
	var a answer
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("%s: %d %q", path, w.Code, w.Body)
	}
	return w.Code, a
}

func TestARequestWithTheSameKeyLandsOnce(t *testing.T) {
	s := start(t)
	for again := range 3 {
		code, a := s.post(t, "/v1/datasets/clicks/records", "k", "a\nb\r\n\nc")
		if code != http.StatusOK || a.Records != 3 || a.Already != (again > 0) {
			t.Fatalf("%d %+v", code, a)
		}
	}
	if n := s.held(t); n != 1 {
		t.Errorf("%d chunks", n)
	}
	for _, c := range []struct {
		path, key string
		code      int
	}{
		{"/v1/datasets/clicks/records", "", http.StatusBadRequest},
		{"/v1/datasets/nothere/records", "k", http.StatusNotFound},
		{"/v1/datasets/clicks/end", "", http.StatusConflict},
	} {
		if code, a := s.post(t, c.path, c.key, "x"); code != c.code || a.Error == "" {
			t.Errorf("%+v: %d %+v", c, code, a)
		}
	}
}

func TestATransactionOfSeveralRequestsLandsWithItsCommit(t *testing.T) {
	s := start(t)
	var all []string
	for range 2 {
		code, a := s.post(t, "/v1/datasets/clicks/transactions/t1/records", "", "a\nb")
		if code != http.StatusOK || len(a.Locators) != 1 || a.Records != 2 {
			t.Fatalf("%d %+v", code, a)
		}
		all = append(all, a.Locators...)
	}
	body, err := json.Marshal(map[string]any{"locators": all})
	if err != nil {
		t.Fatal(err)
	}
	for again := range 2 {
		code, a := s.post(t, "/v1/datasets/clicks/transactions/t1/commit", "", string(body))
		if code != http.StatusOK || a.Records != 4 || a.Already != (again > 0) {
			t.Fatalf("%d %+v", code, a)
		}
	}
	if code, a := s.post(t, "/v1/datasets/clicks/transactions/t2/commit", "", string(body)); code != http.StatusConflict {
		t.Errorf("another transaction: %d %+v", code, a)
	}
}
