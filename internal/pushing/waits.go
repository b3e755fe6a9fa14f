package pushing

import (
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/internal/advice"
)

// Waits tells the user why nothing goes on: after two seconds, and then every ten. If there is no
// master, it says so at once.
type Waits struct {
	To     io.Writer
	Master string // its address

	mu    sync.Mutex
	away  bool      // it was told that there is no master
	since time.Time // when this row of waits began, or was last told
	last  time.Time
	told  bool
}

const (
	waitsQuiet = 2 * time.Second
	waitsAgain = 10 * time.Second
)

// Wait is called before each wait, with the reason (push.OnWait).
func (k *Waits) Wait(reason error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := time.Now()
	if now.Sub(k.last) > waitsAgain { // something has gone on in between
		k.since, k.told = now, false
	}
	k.last = now
	if advice.NoMaster(reason) && !k.away {
		k.since, k.told, k.away = now, true, true
		fmt.Fprintf(k.To, "headrace: no master answers at %s; waiting for it: `headrace up` starts one\n", k.Master)
		return
	}
	quiet := waitsQuiet
	if k.told {
		quiet = waitsAgain
	}
	if now.Sub(k.since) >= quiet {
		k.since, k.told = now, true
		fmt.Fprintf(k.To, "headrace: the master does not take the records yet; trying again: %s\n", status.Convert(reason).Message())
	}
}
