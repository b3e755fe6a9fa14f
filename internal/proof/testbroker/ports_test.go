package testbroker

import "testing"

// Two processes lock as two openings of a file do: the second one goes without.
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
