package master

import (
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/access"
)

func TestEveryPageOfTheMasterHasARole(t *testing.T) {
	m, err := New(Config{State: t.TempDir(), Listen: "127.0.0.1:0", OpenSource: (&shelf{}).open})
	if err != nil {
		t.Fatal(err)
	}
	routes := m.routes(nil, true)
	if len(routes) < 9 {
		t.Fatalf("the master has %d pages, want at least 9", len(routes))
	}
	for pattern := range routes {
		path := strings.TrimSuffix(pattern, "{$}")
		needed, known := access.NeededForPage(path)
		if !known || (needed == 0) != (path == "/healthz") {
			t.Errorf("page %s needs the role %v, in the table of roles: %v", pattern, needed, known)
		}
		if strings.HasPrefix(path, "/debug/") != (needed == access.Operator) {
			t.Errorf("page %s needs the role %v; only /debug/ pages need operator", pattern, needed)
		}
	}
	for pattern := range m.routes(nil, false) {
		if strings.HasPrefix(pattern, "/debug/") {
			t.Errorf("page %s is served on an address other than loopback", pattern)
		}
	}
}
