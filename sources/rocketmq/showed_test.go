package rocketmq

import "testing"

func TestOneWaitServesAllQueuesOfABrokerUntilTheNextListing(t *testing.T) {
	var w showed
	early, done := w.all("b0")
	if done {
		t.Fatal("a wait counts as done, but nobody has waited")
	}
	w.forget() // another listing begins while the first waits
	w.add("b0", early)
	now, done := w.all("b0")
	if done {
		t.Fatal("a wait of the previous listing counts for this one")
	}
	w.add("b0", now)
	if _, done := w.all("b0"); !done {
		t.Error("another queue of the broker waits again")
	}
	if _, done := w.all("b1"); done {
		t.Error("the wait for b0 counts for b1")
	}
	w.forget()
	if _, done := w.all("b0"); done {
		t.Error("the next listing does not wait")
	}
}
