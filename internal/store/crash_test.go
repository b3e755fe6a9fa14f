package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/headrace/headrace/shardsvc"
)

// workload returns batch n. Few keys are overwritten again and again, and some are deleted, so that a lost or partial
// batch shows.
const batches = 50

func workload(n int) []shardsvc.Put {
	val := []byte(fmt.Sprintf("%d:%0900d", n, n)) // so large that the small memtable is flushed during the workload
	puts := []shardsvc.Put{
		{Op: shardsvc.Set, Key: []byte("last"), Value: []byte(strconv.Itoa(n))},
		{Op: shardsvc.Set, Key: fmt.Appendf(nil, "k%03d", n%17), Value: val},
		{Op: shardsvc.Set, Key: fmt.Appendf(nil, "n%06d", n), Value: val},
	}
	if n%5 == 0 {
		puts = append(puts, shardsvc.Put{Op: shardsvc.Delete, Key: fmt.Appendf(nil, "n%06d", n-3)})
	}
	if n%20 == 0 {
		puts = append(puts, shardsvc.Put{Op: shardsvc.DeleteRange, Key: fmt.Appendf(nil, "n%06d", n-19), Value: fmt.Appendf(nil, "n%06d", n-10)})
	}
	return puts
}

// after returns what the folder must contain after batches 1..n.
func after(n int) map[string]string {
	m := map[string]string{}
	for i := 1; i <= n; i++ {
		for _, p := range workload(i) {
			switch p.Op {
			case shardsvc.Set:
				m[string(p.Key)] = string(p.Value)
			case shardsvc.Delete:
				delete(m, string(p.Key))
			case shardsvc.DeleteRange:
				for k := range m {
					if k >= string(p.Key) && k < string(p.Value) {
						delete(m, k)
					}
				}
			}
		}
	}
	return m
}

func small(o *pebble.Options) {
	o.MemTableSize = 32 << 10
	o.L0CompactionThreshold = 2
	o.CacheSize = 1 << 20
}

// failFS is errorfs.FS with recycled logs that can fail, too.
type failFS struct {
	*errorfs.FS
	inj errorfs.Injector
}

func failing(fs vfs.FS, inj errorfs.InjectorFunc) vfs.FS {
	return failFS{FS: errorfs.Wrap(fs, inj), inj: inj}
}

func (f failFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(oldname, newname, category)
	if err != nil {
		return nil, err
	}
	return errorfs.WrapFile(file, f.inj), nil
}

// stopAt runs the workload on fs until a call fails or it ends. It counts the answered batches.
func stopAt(fs vfs.FS, answered *atomic.Int64) error {
	s, err := Open("state", Options{FS: fs, tune: small})
	if err != nil {
		return err
	}
	for i := 1; i <= batches; i++ {
		if err := s.Commit(workload(i)); err != nil {
			return err
		}
		answered.Store(int64(i))
	}
	return s.Close()
}

// mustHold opens the folder that a crash has left, and checks that it contains exactly batches 1..n for an n in
// [lo, hi].
func mustHold(t *testing.T, what string, fs vfs.FS, lo, hi int) {
	t.Helper()
	s, err := Open("state", Options{FS: fs, tune: small})
	if err != nil {
		t.Fatalf("%s: does not open again: %v", what, err)
	}
	got := map[string]string{}
	if err := s.Load(func(k, v []byte) error { got[string(k)] = string(v); return nil }); err != nil {
		t.Fatalf("%s: load: %v", what, err)
	}
	n, _ := strconv.Atoi(got["last"])
	if n < lo || n > hi {
		t.Fatalf("%s: contains batches 1..%d, but %d were answered, and those up to %d were in flight", what, n, lo, hi)
	}
	want := after(n)
	if len(got) != len(want) {
		t.Fatalf("%s: %d keys after batch %d, want %d", what, len(got), n, len(want))
	}
	for k, v := range want {
		if got[k] != v {
			t.Fatalf("%s: key %s after batch %d: %.20q, want %.20q", what, k, n, got[k], v)
		}
	}
	// The store goes on: it accepts the next batch.
	if err := s.Commit(workload(n + 1)); err != nil {
		t.Fatalf("%s: commit after reopen: %v", what, err)
	}
	if err := s.Close(); err != nil {
		t.Fatalf("%s: close: %v", what, err)
	}
}

// countWrites returns how many writing calls the whole workload makes.
func countWrites(t *testing.T) int {
	var n, tables atomic.Int64
	fs := failing(vfs.NewCrashableMem(), func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			n.Add(1)
		}
		if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") {
			tables.Add(1)
		}
		return nil
	})
	var answered atomic.Int64
	if err := stopAt(fs, &answered); err != nil || answered.Load() != batches {
		t.Fatalf("the workload fails without a crash: %v after %d batches", err, answered.Load())
	}
	if tables.Load() < 2 {
		t.Fatalf("only %d tables were written, so the workload does not flush", tables.Load())
	}
	return int(n.Load())
}

// stride is 1, so that the test stops at every call. With -short, which goes with the race detector, it is 1 to 5, so
// that runs stop at different calls.
func stride() int {
	if testing.Short() {
		return 1 + rand.IntN(5)
	}
	return 1
}

func seed(t *testing.T) uint64 {
	v := uint64(time.Now().UnixNano())
	if e := os.Getenv("HEADRACE_SEED"); e != "" {
		var err error
		if v, err = strconv.ParseUint(e, 10, 64); err != nil {
			t.Fatalf("HEADRACE_SEED: %v", err)
		}
	}
	t.Logf("HEADRACE_SEED=%d", v)
	return v
}

// Guarantee 3: "Once acked, a record stays acked through SIGKILL and through power
// loss at any byte." This holds for everything that was answered after a commit.
func TestPowerLossAtEveryWriteKeepsWhatWasAnswered(t *testing.T) {
	total := countWrites(t)
	rng := rand.New(rand.NewPCG(seed(t), 1))
	for k := 0; k < total; k += stride() {
		// Half of the crashes forget everything that was not synced. The others keep a random part of it.
		cfg := vfs.CrashCloneCfg{}
		if k%2 == 1 {
			cfg = vfs.CrashCloneCfg{UnsyncedDataPercent: 10 + rng.IntN(90), RNG: rng}
		}
		var (
			once      sync.Once
			n         atomic.Int64
			answered  atomic.Int64
			lo, hi    int
			clone     *vfs.MemFS
			mem       = vfs.NewCrashableMem()
			crashDone = make(chan struct{})
		)
		fs := failing(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || int(n.Add(1)) <= k {
				return nil
			}
			once.Do(func() {
				lo = int(answered.Load())
				clone = mem.CrashClone(cfg)
				hi = int(answered.Load()) + 1
				close(crashDone)
			})
			return errorfs.ErrInjected // the crash ends all writing
		}))
		err := stopAt(fs, &answered)
		select {
		case <-crashDone:
		default:
			// Background work has made fewer calls this time, so the workload ended before the crash.
			if err != nil {
				t.Fatalf("stop at %d: %v without a crash", k, err)
			}
			continue
		}
		mustHold(t, fmt.Sprintf("power loss at writing call %d of %d, %d%% of the unsynced kept", k, total, cfg.UnsyncedDataPercent), clone, lo, hi)
	}
}

// One call fails, and the disk works before and after it. Nothing is tried twice, the store fails for good, and the
// folder contains what was answered.
func TestOneFailedCallEndsTheStoreAndLosesNothingAnswered(t *testing.T) {
	total := countWrites(t)
	for k := 0; k < total; k += stride() {
		var n, answered atomic.Int64
		var failed atomic.Pointer[errorfs.Op]
		mem := vfs.NewCrashableMem()
		fs := failing(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || int(n.Add(1)) != k+1 {
				return nil
			}
			failed.Store(&op)
			return errorfs.ErrInjected
		}))
		err := stopAt(fs, &answered)
		what := fmt.Sprintf("call %d of %d failed", k, total)
		if op := failed.Load(); op != nil {
			what += fmt.Sprintf(" (kind %d on %s)", op.Kind, op.Path)
			if err == nil && (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData) {
				t.Errorf("%s: a failed sync was not reported", what)
			}
		}
		if err != nil {
			if _, ok := errors.AsType[*Error](err); !ok {
				t.Errorf("%s: the error does not name the folder: %v", what, err)
			}
		}
		a := int(answered.Load())
		hi := a
		if err != nil {
			hi++
		}
		mustHold(t, what, mem.CrashClone(vfs.CrashCloneCfg{}), a, hi)
	}
}
