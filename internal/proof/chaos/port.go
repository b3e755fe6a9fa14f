package chaos

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// A process that is killed comes back to its port. Meanwhile nobody else may have
// it: so it lies below those that the kernel gives to outgoing connections, and is
// handed out once. Test brokers have those from 20000 on.
const firstPort, lastPort = 12000, 20000

var nextPort atomic.Int64

func init() { nextPort.Store(rand.Int64N(lastPort - firstPort)) } // several of us may run at once

// freePort is a port on 127.0.0.1 on which nobody listens.
func freePort() (int, error) {
	for range lastPort - firstPort {
		port := firstPort + int(nextPort.Add(1)%(lastPort-firstPort))
		if l, err := net.Listen("tcp", local(port)); err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("every port from " + strconv.Itoa(firstPort) + " on is taken")
}

func local(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
