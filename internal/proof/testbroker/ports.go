package testbroker

import (
	"fmt"
	"math/rand/v2"
	"net"
)

// freePorts finds n ports below those that systems hand out by themselves
// (32768 and up), so that a broker that starts again finds its own still free.
func freePorts(n int) ([]int, error) {
	var held []net.Listener
	defer func() {
		for _, l := range held {
			_ = l.Close()
		}
	}()
	var ports []int
	for range 200 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		held = append(held, l)
		if ports = append(ports, port); len(ports) == n {
			return ports, nil
		}
	}
	return nil, fmt.Errorf("no %d free ports on 127.0.0.1 from 20000 to 32000", n)
}
