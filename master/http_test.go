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
		t.Fatalf("%d pages", len(routes))
	}
	for pattern := range routes {
		path := strings.TrimSuffix(pattern, "{$}")
		needed, known := access.NeededForPage(path)
		if !known || (needed == 0) != (path == "/healthz") {
			t.Errorf("%s: %v, in the table: %v", pattern, needed, known)
		}
		if strings.HasPrefix(path, "/debug/") != (needed == access.Operator) {
			t.Errorf("%s needs %v", pattern, needed)
		}
	}
	for pattern := range m.routes(nil, false) {
		if strings.HasPrefix(pattern, "/debug/") {
			t.Errorf("%s is served off loopback", pattern)
		}
	}
}
