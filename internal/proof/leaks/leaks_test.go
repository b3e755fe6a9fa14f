package leaks

import (
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestAGoroutineThatStaysIsFoundAndOneThatEndsIsNot(t *testing.T) {
	before := []goleak.Option{goleak.IgnoreCurrent()}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		<-end
	}()
	if err := find(0, stuckLooks, before); err == nil {
		t.Error("a goroutine that never ends is not found")
	}
	close(end)
	<-ended
	None(t, before...)
}

// A Close that leaves such goroutines for a while fails, long before the hour.
func TestGoroutinesThatWaitForEachOtherOrForATimerAreFoundSoon(t *testing.T) {
	before := []goleak.Option{goleak.IgnoreCurrent()}
	end := make(chan struct{})
	go func() { <-end }()
	go func() {
		select {
		case <-end:
		case <-time.After(time.Hour):
		}
	}()
	go func() {
		var wg sync.WaitGroup
		wg.Go(func() { <-end })
		wg.Wait()
	}()
	if err := find(time.Hour, 2, before); err == nil {
		t.Error("goroutines that wait for each other or for a timer are not found")
	}
	close(end)
	None(t, before...)
}

// A goroutine that reads from a pipe or a socket is waited for: on a slow machine the bytes may be late.
func TestAGoroutineThatWaitsForTheOutsideIsNotStuck(t *testing.T) {
	before := []goleak.Option{goleak.IgnoreCurrent()}
	in, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	came := make(chan struct{})
	go func() {
		defer close(came)
		_, _ = in.Read(make([]byte, 1))
	}()
	go func() { <-came }()
	err = find(0, stuckLooks, before)
	if err == nil {
		t.Fatal("the goroutine that reads from a pipe is not found")
	}
	if all := stuck(err); all != nil {
		t.Errorf("a goroutine that waits for a pipe counts as stuck: %v of %v", all, err)
	}
	_ = out.Close()
	None(t, before...)
}
