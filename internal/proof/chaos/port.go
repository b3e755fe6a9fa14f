package chaos

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// A killed process comes back to its port, which no other process may take meanwhile. So our ports are
// below those that the kernel gives to outgoing connections, and each is handed out once. Test
// brokers use the ports from 20000 on.
const firstPort, lastPort = 12000, 20000

var nextPort atomic.Int64

func init() { nextPort.Store(rand.Int64N(lastPort - firstPort)) } // several runs may go on at once

// freePort gives a port on 127.0.0.1 where nothing listens.
func freePort() (int, error) {
	for range lastPort - firstPort {
		port := firstPort + int(nextPort.Add(1)%(lastPort-firstPort))
		if l, err := net.Listen("tcp", local(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no port on 127.0.0.1 is free from " + strconv.Itoa(firstPort) + " on; end the programs that use them")
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
