package leaks

import (
	"testing"

	"go.uber.org/goleak"
)

func TestAGoroutineThatStaysIsFoundAndOneThatEndsIsNot(t *testing.T) {
	before := []goleak.Option{goleak.IgnoreCurrent()}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		<-end
	}()
	if err := find(0, before); err == nil {
		t.Error("a goroutine that waits is not found")
	}
	close(end)
	<-ended
	None(t, before...)
}
