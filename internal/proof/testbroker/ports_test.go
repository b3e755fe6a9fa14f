package testbroker

import "testing"

// Two openings of a file lock each other out, as two processes do: the second one does not get the port.
func TestAPortIsHandedOutOnce(t *testing.T) {
	dir := t.TempDir()
	ports, err := freePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	for want := range 2 {
		ok, err := takePort(dir, ports[0])
		if err != nil || ok != (want == 0) {
			t.Fatalf("call %d: %v, %v", want, ok, err)
		}
	}
}

// A broker of RocketMQ listens on a third port, two below its first: nobody else gets that one either.
func TestEachPortOfARocketMQBrokerIsHandedOutOnce(t *testing.T) {
	dir, err := locks()
	if err != nil {
		t.Fatal(err)
	}
	port, ha, err := brokerPorts()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []int{port, port - 2, ha} {
		if ok, err := takePort(dir, p); ok || err != nil {
			t.Errorf("of a broker with the ports %d and %d, %d is handed out again: %v", port, ha, p, err)
		}
	}
}

func TestAServersPortIsNoneThatTheSystemGivesToConnections(t *testing.T) {
	one, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	other, err := FreePort()
	if err != nil || one == other || max(one, other) >= 20000 {
		t.Fatalf("FreePort gave %d and then %d (%v), want two ports below 20000", one, other, err)
	}
	dir, err := locks()
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := takePort(dir, one); ok || err != nil { // as another process would, while the server is down
		t.Errorf("port %d is handed out again: %v", one, err)
	}
}
