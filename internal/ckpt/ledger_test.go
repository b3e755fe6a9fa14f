package ckpt

import (
	"testing"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

func TestATrainerBeginsWithNothingIfNoCheckpointIsKept(t *testing.T) {
	for _, c := range []struct {
		model  string
		states []string
		want   bool
	}{
		{"shared", nil, false}, // its model lives outside the trainers
		{"replicated", nil, true},
		{"replicated", []string{"voided"}, true},
		{"private", []string{"voided", "bound"}, false},
	} {
		reply := &headracev1.CutsReply{Model: c.model}
		for _, s := range c.states {
			reply.Cuts = append(reply.Cuts, &headracev1.CutState{State: s})
		}
		if got := NothingKept(reply); got != c.want {
			t.Errorf("%s with %v: %v", c.model, c.states, got)
		}
	}
}
