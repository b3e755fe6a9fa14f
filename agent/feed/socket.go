package feed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/internal/link"
)

// ErrAgentThere is wrapped when a living agent listens on the socket already.
var ErrAgentThere = errors.New("another agent listens there")

// listen opens the trainers' socket: mode 0600 in a folder of ours with 0700. A
// socket file that nobody answers on was left by an agent that died: it is
// replaced, and found reports that trainers of that agent may come back.
func listen(ctx context.Context, path string) (l *net.UnixListener, found bool, err error) {
	if err := link.CheckSocketPath(path); err != nil {
		return nil, false, err
	}
	if err := makeFolder(filepath.Dir(path)); err != nil {
		return nil, false, err
	}
	// One agent at a time looks at the path; the lock ends with the process.
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("socket %s: %w", path, err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, false, fmt.Errorf("socket %s: %w (it is just starting)", path, ErrAgentThere)
	}
	defer os.Remove(path + ".lock")

	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, false, fmt.Errorf("socket %s: %w", path, err)
	case info.Mode().Type() != fs.ModeSocket:
		return nil, false, fmt.Errorf("socket %s: there is something that is not a socket (%s); choose another path or remove it", path, info.Mode().Type())
	default:
		if err := answered(ctx, path); err != nil {
			return nil, false, err
		}
		if err := os.Remove(path); err != nil {
			return nil, false, fmt.Errorf("socket %s: remove what a dead agent has left: %w", path, err)
		}
		found = true
	}
	// The mode is set a moment after the socket was made, because the umask belongs to the
	// whole process. Until then, admitted still checks each peer's credentials.
	if l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}); err != nil {
		return nil, false, fmt.Errorf("socket %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		_ = l.Close()
		return nil, false, fmt.Errorf("socket %s: %w", path, err)
	}
	return l, found, nil
}

// answered is an error if a living agent has the socket.
func answered(ctx context.Context, path string) error {
	d := net.Dialer{Timeout: time.Second}
	c, err := d.DialContext(ctx, "unix", path)
	if err == nil {
		_ = c.Close()
		return fmt.Errorf("socket %s: %w; stop it (`headrace top` shows it), or give this one another name and socket", path, ErrAgentThere)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("socket %s: cannot tell whether an agent lives there: %w", path, err)
	}
	return nil
}

func makeFolder(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("folder of the socket: %w", err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return fmt.Errorf("folder of the socket %s: %w", dir, err)
	}
	// No other user may put a socket where trainers look for ours. A sticky folder (like
	// /tmp) is safe too: others cannot replace our file in it.
	if st.Mode&0o022 != 0 && st.Mode&unix.S_ISVTX == 0 {
		return fmt.Errorf("folder of the socket %s can be written by others (mode %04o): chmod 700 it, or choose another", dir, st.Mode&0o7777)
	}
	if int(st.Uid) != os.Getuid() && st.Uid != 0 {
		return fmt.Errorf("folder of the socket %s belongs to uid %d, not to us (%d): choose another", dir, st.Uid, os.Getuid())
	}
	return nil
}

// peer is the process at the other end of c, as the kernel says. Its pid is 0 if it lives
// in a pid namespace that we do not see.
func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var optErr error
	if err := raw.Control(func(fd uintptr) { cred, optErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return nil, err
	}
	return cred, optErr
}

// admitted lets in the same user and root.
func admitted(cred *unix.Ucred) error {
	if cred.Uid != 0 && int(cred.Uid) != os.Getuid() {
		return fmt.Errorf("uid %d may not use the agent of uid %d", cred.Uid, os.Getuid())
	}
	return nil
}
