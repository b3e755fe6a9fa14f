package feed

import (
	"net"
	"sync"
	"time"

	"github.com/headrace/headrace/internal/frame"
)

// TellEnded tells the agent on a socket how a process group that we started has ended. If
// no agent is there, nobody needs to know.
func TellEnded(socket string, group int, crash bool) {
	c, err := net.DialTimeout("unix", socket, fateWait)
	if err != nil {
		return
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(fateWait))
	_ = frame.WriteControl(c, frame.TypeEnded, 0, 0, frame.Ended{Group: group, Crash: crash})
}

// fates keeps how processes ended, as their parents report it: only a parent learns which
// signal ended a process. A process is found by its group.
type fates struct {
	mu    sync.Mutex
	said  map[int]fate
	heard chan struct{} // closed at the next report
}

type fate struct {
	crash bool
	at    time.Time
}

const (
	// fateWait is how long we wait for the report of a process's parent.
	fateWait = time.Second
	// fateKept is how long a report counts. Later the number may belong to another group.
	fateKept = 10 * time.Second
)

func (f *fates) say(group int, crash bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.said == nil {
		f.said = map[int]fate{}
	}
	for g, x := range f.said {
		if time.Since(x.at) > fateKept {
			delete(f.said, g)
		}
	}
	f.said[group] = fate{crash, time.Now()}
	if f.heard != nil {
		close(f.heard)
		f.heard = nil
	}
}

// crashed says whether a process of that group crashed. The process has ended. Without a
// report it counts as not crashed.
func (f *fates) crashed(group int) bool {
	limit := time.NewTimer(fateWait)
	defer limit.Stop()
	for {
		f.mu.Lock()
		x, ok := f.said[group]
		if f.heard == nil {
			f.heard = make(chan struct{})
		}
		heard := f.heard
		f.mu.Unlock()
		if ok && time.Since(x.at) < fateKept {
			return x.crash
		}
		select {
		case <-heard:
		case <-limit.C:
			return false
		}
	}
}
