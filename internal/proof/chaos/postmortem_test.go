package chaos

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestDumpsAreToldAsPlacesInOurCode(t *testing.T) {
	got := goPlaces(`SIGQUIT: quit
PC=0x4 m=0 sigcode=0

goroutine 8 gp=0xc0 m=nil [select, 2 minutes]:
runtime.gopark(0x1)
	/go/src/runtime/proc.go:1
github.com/headrace/headrace/agent/feed.(*cutter).wait(0x1, {0x2})
	/x/cut.go:1 +0x1
github.com/headrace/headrace/agent/feed.(*stream).cut(0x1)
	/x/cut.go:2 +0x1

goroutine 9 gp=0xc0 m=nil [select]:
github.com/headrace/headrace/agent/feed.(*cutter).wait(0x1, {0x2})
	/x/cut.go:1 +0x1
github.com/headrace/headrace/agent/feed.(*stream).cut(0x1)
	/x/cut.go:2 +0x1

goroutine 1 gp=0xc0 m=nil [chan receive]:
main.main()
	/x/main.go:1 +0x1
`)
	if want := []string{"2 at agent/feed.(*cutter).wait < agent/feed.(*stream).cut [select]"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	got = pythonPlaces(`Thread 0x1 (most recent call first):
  File "/a/_receive.py", line 62 in ready
  File "/a/_feed.py", line 126 in _first

Current thread 0x2 (most recent call first):
  File "/a/threading.py", line 1 in join
`)
	if want := []string{"_receive.py line 62 in ready < _feed.py line 126 in _first", "threading.py line 1 in join"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

func TestTheLastLineOfALogIsFound(t *testing.T) {
	name := filepath.Join(t.TempDir(), "x.log")
	for text, want := range map[string]string{"": "", "one": "one", "one\ntwo\n\n": "two", strings.Repeat("x", 300): strings.Repeat("x", mostShort) + " ..."} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lastLine(name); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	if got := lastLine(name + ".not"); got != "" {
		t.Errorf("no such file: %q", got)
	}
}
