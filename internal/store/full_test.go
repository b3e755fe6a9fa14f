package store

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/headrace/headrace/shardsvc"
	"golang.org/x/sys/unix"
)

const smallDisk = 48 << 20

// fill commits until the store fails, and prints each batch that was answered. It runs in a process of its own, which
// the failure ends, as it ends a master.
func fill(dir string) int {
	signal.Ignore(syscall.SIGXFSZ) // so that a limit on the file size is an error of the write, and does not kill the process
	if limit := os.Getenv("HEADRACE_STORE_FSIZE"); limit != "" {
		n, _ := strconv.ParseUint(limit, 10, 64)
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: n, Max: n}); err != nil {
			fmt.Println("setrlimit:", err)
			return 2
		}
	}
	s, err := Open(dir, Options{})
	if err != nil {
		fmt.Println("open:", err)
		return 2
	}
	out := bufio.NewWriter(os.Stdout)
	for n := 1; n < 1<<20; n++ {
		if err := s.Commit(bigBatch(n)); err != nil {
			fmt.Fprintln(out, "failed", err)
			out.Flush()
			return 1
		}
		fmt.Fprintln(out, "answered", n)
	}
	return 2
}

// bigBatch returns a batch that does not compress, so that 200 of them fill the small disk.
func bigBatch(n int) []shardsvc.Put {
	x := uint64(n) * 0x9E3779B97F4A7C15
	val := make([]byte, 256<<10)
	for i := range val {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		val[i] = byte(x)
	}
	return []shardsvc.Put{
		{Op: shardsvc.Set, Key: []byte("last"), Value: []byte(strconv.Itoa(n))},
		{Op: shardsvc.Set, Key: fmt.Appendf(nil, "n%08d", n), Value: val},
	}
}

// checkFilled reads what fill has printed, and opens the folder that it has left.
func checkFilled(dir string, said []byte) error {
	answered, failure := 0, ""
	for line := range strings.Lines(string(said)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "answered":
			answered, _ = strconv.Atoi(rest)
		case "failed":
			failure = rest
		default:
			return fmt.Errorf("unexpected line %q", line)
		}
	}
	if answered == 0 || failure == "" {
		return fmt.Errorf("answered %d batches, then %q", answered, failure)
	}
	s, err := Open(dir, Options{})
	if err != nil {
		return fmt.Errorf("does not open with more space: %w", err)
	}
	last, keys := 0, 0
	err = s.Load(func(k, v []byte) error {
		if string(k) == "last" {
			last, _ = strconv.Atoi(string(v))
			return nil
		}
		keys++
		if want := bigBatch(keys)[1]; !bytes.Equal(k, want.Key) || !bytes.Equal(v, want.Value) {
			return fmt.Errorf("batch %d is not what was written", keys)
		}
		return nil
	})
	if err := errors.Join(err, s.Close()); err != nil {
		return err
	}
	if keys != last || (last != answered && last != answered+1) {
		return fmt.Errorf("contains %d of %d batches, but %d were answered", keys, last, answered)
	}
	fmt.Printf("filled: %d batches answered, %d kept, then: %s\n", answered, last, failure)
	return nil
}

// fillTmpfs runs in a mount namespace of its own. It mounts a small tmpfs, runs a process that fills it, makes more
// space, and checks what is there.
func fillTmpfs(dir string) int {
	fail := func(what string, err error) int {
		fmt.Println(what+":", err)
		return 1
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fail("private mounts", err)
	}
	if err := unix.Mount("small", dir, "tmpfs", 0, fmt.Sprintf("size=%d", smallDisk)); err != nil {
		return fail("mount", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	said, _ := start("fill:" + dir + "/state").Output() // it ends with status 1; its output is checked below
	if !bytes.Contains(said, []byte("disk full")) || !bytes.Contains(said, []byte(dir+"/state")) {
		return fail("the failure names neither folder nor cause", fmt.Errorf("%s", tail(said)))
	}
	if err := unix.Mount("small", dir, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", 8*smallDisk)); err != nil {
		return fail("remount", err)
	}
	if err := checkFilled(dir+"/state", said); err != nil {
		return fail("after the disk got space", err)
	}
	return 0
}

func tail(b []byte) []byte { return b[max(0, len(b)-400):] }

// A real file system of 48 MiB is filled to the last byte. If this process may not mount one, not even in a user
// namespace of its own, the test uses a limit on the size of files instead.
func TestARealFullDiskKeepsWhatWasAnswered(t *testing.T) {
	dir := t.TempDir()
	var tried []string
	for _, flags := range []uintptr{unix.CLONE_NEWNS, unix.CLONE_NEWNS | unix.CLONE_NEWUSER} {
		cmd := start("tmpfs:" + dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags}
		if flags&unix.CLONE_NEWUSER != 0 {
			cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
			cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
		}
		out, err := cmd.CombinedOutput()
		if err == nil {
			t.Logf("%s", out)
			return
		}
		if !errors.Is(err, syscall.EPERM) && !bytes.HasPrefix(out, []byte("mount:")) && !bytes.HasPrefix(out, []byte("private mounts:")) {
			t.Fatalf("%v: %s", err, out)
		}
		tried = append(tried, fmt.Sprintf("%v %s", err, out))
	}
	t.Logf("no small file system here (%q): limiting the size of files instead", tried)
	cmd := start("fill:" + dir + "/state")
	cmd.Env = append(cmd.Env, "HEADRACE_STORE_FSIZE="+strconv.Itoa(smallDisk/4))
	said, _ := cmd.Output()
	if !bytes.Contains(said, []byte("file too large")) {
		t.Fatalf("the store did not run into the limit: %s", tail(said))
	}
	if err := checkFilled(dir+"/state", said); err != nil {
		t.Fatal(err)
	}
}
