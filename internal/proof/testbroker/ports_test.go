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

func TestAServersPortIsNoneThatTheSystemGivesToConnections(t *testing.T) {
	one, err := FreePort()
	if err != nil {
		t.Fatal(err)
	}
	other, err := FreePort()
	if err != nil || one == other || max(one, other) >= 20000 {
		t.Fatalf("FreePort gave %d and then %d (%v), want two ports below 20000", one, other, err)
	}
}
