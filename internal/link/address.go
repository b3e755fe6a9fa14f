package link

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// DefaultMaster is where a master listens, and is looked for, when nothing else
// is said.
const DefaultMaster = "127.0.0.1:7070"

// DefaultHTTP is where a master serves /metrics, /healthz, /readyz and pprof.
const DefaultHTTP = "127.0.0.1:7071"

// AddressFile is the file of a state folder that names the living master.
const AddressFile = "master.addr"

// CheckAddress says what is wrong with a host:port; nil: nothing. Port 0 (any free port)
// is legal only for listening.
func CheckAddress(addr string, listen bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Errorf("%q is not host:port, as in %s", addr, DefaultMaster)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fmt.Errorf("port %q of %q is not a number from 0 to 65535", port, addr)
	}
	if n == 0 && !listen {
		return fmt.Errorf("port 0 of %q is no port to connect to", addr)
	}
	if host == "" && !listen {
		return fmt.Errorf("%q has no host", addr)
	}
	return nil
}

// Loopback reports whether only this machine can reach addr. Of names only localhost
// counts, because the address of any other name can change.
func Loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]"))
	return ip != nil && ip.IsLoopback()
}

// WriteAddress tells local tools where the master of a state folder listens.
func WriteAddress(state, addr string) error {
	tmp := filepath.Join(state, AddressFile+".new")
	if err := os.WriteFile(tmp, []byte(addr+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(state, AddressFile))
}

// RemoveAddress removes the file if it still names addr. Another master may own the
// folder by now.
func RemoveAddress(state, addr string) {
	if got, err := ReadAddress(state); err == nil && got == addr {
		_ = os.Remove(filepath.Join(state, AddressFile))
	}
}

// ErrNoMaster means that no master has left its address in the state folder.
var ErrNoMaster = errors.New("no master has left its address there")

// ReadAddress reads what WriteAddress wrote. The master may have died since.
// Errors: ErrNoMaster.
func ReadAddress(state string) (string, error) {
	b, err := os.ReadFile(filepath.Join(state, AddressFile))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("%s: %w", state, ErrNoMaster)
	}
	if err != nil {
		return "", err
	}
	addr := strings.TrimSpace(string(b))
	if err := CheckAddress(addr, false); err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Join(state, AddressFile), err)
	}
	return addr, nil
}
