package access

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	_ "github.com/headrace/headrace/api/headrace/v1"
)

// everyCall returns each method of each service of the protocol.
func everyCall(t *testing.T) (all []string) {
	protoregistry.GlobalFiles.RangeFilesByPackage("headrace.v1", func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				all = append(all, "/"+string(s.FullName())+"/"+string(s.Methods().Get(j).Name()))
			}
		}
		return true
	})
	if len(all) < 15 {
		t.Fatalf("only %d calls were found: %v", len(all), all)
	}
	return all
}

func TestEveryCallHasARoleAndIsRefusedToTheOthers(t *testing.T) {
	for _, method := range everyCall(t) {
		needed, known := neededForCall(method)
		if !known || needed == 0 {
			t.Errorf("%s has no row in the table: say which roles may make this call", method)
			continue
		}
		for _, r := range []Roles{0, Viewer, Agent, Operator, Pusher} {
			var info credentials.AuthInfo = Caller{"someone", r}
			err := mayCall(peer.NewContext(t.Context(), &peer.Peer{AuthInfo: info}), method)
			if want := needed&r != 0; (err == nil) != want {
				t.Errorf("%s by %v: %v", method, r, err)
			}
		}
		if mayCall(t.Context(), method) == nil {
			t.Errorf("%s is open to a connection without a caller", method)
		}
		if verb := method[strings.LastIndexByte(method, '/')+1:]; needed&(Viewer|Agent) == 0 == strings.Contains("Describe List State Excluded Job Cuts Show Session Read Chunks Meet Keep Look Check Fetch Forget", verb) {
			t.Errorf("%s needs %v: calls that only look must be open to a viewer or an agent, and only those", method, needed)
		}
	}
	for method := range calls {
		if !strings.Contains(strings.Join(everyCall(t), " ")+" ", method+" ") {
			t.Errorf("%s is in the table, but not in the protocol", method)
		}
	}
	if mayCall(peer.NewContext(t.Context(), &peer.Peer{AuthInfo: Caller{"owner", Owner}}), "/headrace.v1.Datasets/New") == nil {
		t.Error("a call that is not in the table was let through")
	}
}

func TestTokensAreMadeOnceAndForTheirOwnerAlone(t *testing.T) {
	dir := t.TempDir()
	if err := Keep(dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, OwnerFile)
	first, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info, err)
	}
	if err := Keep(dir); err != nil {
		t.Fatal(err)
	}
	if again, err := os.ReadFile(path); err != nil || string(again) != string(first) || len(first) < 40 {
		t.Errorf("the second Keep has replaced the token of %d bytes: %v", len(first), err)
	}
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Keep(dir); err == nil || !strings.Contains(err.Error(), "can be read by other users") || strings.Contains(err.Error(), strings.TrimSpace(string(first))) {
		t.Error(err)
	}
	if _, err := Private(filepath.Join(dir, "none")); !errors.Is(err, ErrNoToken) {
		t.Errorf("got the error %v, want %v", err, ErrNoToken)
	}
}

func TestATokenFileSaysWhatIsWrongAndNeverShowsAToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	for text, want := range map[string]string{"": "is empty", "short\n": "line 1 is no token", "good-token-good-token\nwith space in this one\n": "line 2 is no token"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := Lines(path)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got the error %v, want one with %q", text, err, want)
		}
		for _, word := range strings.Fields(text) {
			if len(word) > 4 && err != nil && strings.Contains(err.Error(), word) && word != "space" {
				t.Errorf("the error shows %q: %v", word, err)
			}
		}
	}
}

func TestCertificatesHaveTheRolesOfTheirNames(t *testing.T) {
	b := &Book{Names: []Entry{{Agent, "node-*"}, {Viewer, "*.monitoring"}, {Operator, "alice"}}}
	for name, want := range map[string]Roles{"node-1": Agent, "node-1.evil": 0, "a.monitoring": Viewer, "a.b.monitoring": 0, "alice": Operator, "alice2": 0, "": 0} {
		if got := b.ByCertificate(&x509.Certificate{Subject: pkix.Name{CommonName: name}}); got.Roles != want {
			t.Errorf("%q: %v, want %v", name, got.Roles, want)
		}
		if got := b.ByCertificate(&x509.Certificate{DNSNames: []string{"x", name}}); got.Roles != want {
			t.Errorf("DNS name %q: %v, want %v", name, got.Roles, want)
		}
	}
	for _, wrong := range []string{"alice", "root=alice", "viewer="} {
		if _, err := ParseEntry(wrong); err == nil {
			t.Errorf("%q is accepted", wrong)
		}
	}
}

func TestPagesAreForTheirRolesAndOnlyHealthIsOpen(t *testing.T) {
	dir := t.TempDir()
	if err := Keep(dir); err != nil {
		t.Fatal(err)
	}
	tokens := map[string]string{"": "", "wrong": "not-the-token-of-this-job"}
	for _, name := range []string{OwnerFile, ViewerFile} {
		all, err := Private(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		tokens[name] = all[0]
	}
	h := (&Book{State: dir}).Pages(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	for path := range pages {
		for name, token := range tokens {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			w := httptest.NewRecorder()
			h.ServeHTTP(w, r)
			want := path == "/healthz" || name == OwnerFile || name == ViewerFile && path != "/debug/pprof/" && path != "/v1/datasets/"
			code := http.StatusOK
			switch {
			case want:
			case name == ViewerFile:
				code = http.StatusForbidden // the token is known, but its role may not see the page
			default:
				code = http.StatusUnauthorized
			}
			if w.Code != code {
				t.Errorf("%s with token %q: %d, want %d", path, name, w.Code, code)
			}
		}
	}
	// A wrong token is refused, even if the caller has proven another one.
	r := httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil)
	r = r.WithContext(WithCaller(r.Context(), Caller{"a viewer", Viewer}))
	for token, code := range map[string]int{"": http.StatusForbidden, tokens["wrong"]: http.StatusUnauthorized, tokens[OwnerFile]: http.StatusOK} {
		r.Header.Del("Authorization")
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, r); w.Code != code {
			t.Errorf("a viewer with token %q: %d, want %d", token, w.Code, code)
		}
	}
	for _, path := range []string{"/nope", "/healthz/x", "/debug/pprofx", "/debug/pprof/heap"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		if w.Code != http.StatusUnauthorized {
			t.Errorf("%s without a token: %d", path, w.Code)
		}
	}
}
