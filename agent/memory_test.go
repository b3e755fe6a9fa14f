package agent_test

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/headrace/headrace/internal/frame"
)

// heap returns the bytes of the heap that are in use.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A frame takes memory for its own rows, not for the largest possible frame. So a trainer with small
// batches costs its node little memory.
func TestSmallFramesTakeLittleMemory(t *testing.T) {
	root, _ := input(t, 30000, 30000)
	m := newRealMaster(t, "shared", fmt.Sprintf(leased, root), root, time.Minute)
	a := m.agent("node", socketIn(t))
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	before := heap()
	const n = 16
	var all []*stream
	for k := range uint32(n) {
		s := must(tr.open(k+1, frame.Open{Dataset: "lines", Rows: 4, Track: true}))(t)
		all = append(all, s)
		check(t, s.credit(1))
		must(s.next(0))(t)
	}
	if kib := (heap() - before) / n >> 10; kib > 512 {
		t.Errorf("a stream of batches of 4 rows takes %d KiB", kib)
	}
	for _, s := range all {
		s.close()
	}
	tr.bye()
}
