package testbroker

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
)

// taken holds the locks of the ports that this process has handed out. The kernel releases them when the
// process ends. So a broker that starts again finds its own port, and no other process takes the port
// before the broker listens.
var taken struct {
	sync.Mutex
	locks []*os.File
}

// freePorts finds n ports below those that the system gives to connections (32768 and up), so that a broker
// that starts again finds its own still free.
func freePorts(n int) ([]int, error) {
	dir, err := locks()
	if err != nil {
		return nil, err
	}
	var ports []int
	for range 200 {
		port := 20000 + rand.IntN(12000)
		if ok, err := takePort(dir, port); err != nil {
			return nil, err
		} else if !ok {
			continue
		}
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports on 127.0.0.1 from 20000 to 32000", n)
}

// locks is the folder with a file for each port.
func locks() (string, error) {
	cache, err := os.UserCacheDir() // a temporary folder may belong to one run, and would not have the locks of others
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "headrace", "ports")
	return dir, os.MkdirAll(dir, 0o700)
}

// takePort locks the file of a port, and says whether the port is free.
func takePort(dir string, port int) (bool, error) {
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return false, err
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		return false, f.Close()
	}
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return false, f.Close()
	}
	taken.Lock()
	taken.locks = append(taken.locks, f)
	taken.Unlock()
	return true, l.Close()
}

// Ports of servers that are no brokers, below those of the brokers.
const firstPort, lastPort = 12000, 20000

var nextPort atomic.Int64

func init() { nextPort.Store(rand.Int64N(lastPort - firstPort)) } // several runs may go on at once

// FreePort finds a port on 127.0.0.1 where nothing listens, for a server that may be killed and comes back
// to its port. So the port is below those that the kernel gives to connections, and until this process ends,
// no other call gets it, in this process or another one.
func FreePort() (int, error) {
	dir, err := locks()
	if err != nil {
		return 0, err
	}
	for range lastPort - firstPort {
		port := firstPort + int(nextPort.Add(1)%(lastPort-firstPort))
		if free, err := takePort(dir, port); err != nil {
			return 0, err
		} else if free {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no port on 127.0.0.1 is free from %d to %d; end the programs that use them", firstPort, lastPort)
}
