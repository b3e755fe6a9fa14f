package feed

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOnlyOurOwnUserAndRootMayUseAnAgent(t *testing.T) {
	for uid, want := range map[uint32]bool{uint32(os.Getuid()): true, 0: true, uint32(os.Getuid()) + 1: false, 65534: os.Getuid() == 65534} {
		if err := admitted(&unix.Ucred{Uid: uid}); (err == nil) != want || err != nil && !strings.Contains(err.Error(), "may not use the agent") {
			t.Errorf("a caller with uid %d: %v, want it admitted (%v), or an error that says that it may not use the agent", uid, err, want)
		}
	}
}
