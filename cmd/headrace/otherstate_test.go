package main

import (
	"strings"
	"testing"
)

// If --model or --job is not the one with which the state folder was made, the error is one line, and
// perhaps one with a hint. They say to which job the state belongs and which flag to give. There is no
// stack trace.
func TestAStateOfAnotherModelOrJobIsRefusedInOneLine(t *testing.T) {
	w := newWorld(t)
	w.clicks(10)
	m := w.master("--model", "replicated")
	m.stop()
	for _, tc := range []struct {
		args string
		says []string
	}{
		{"master --listen 127.0.0.1:0 --http off --model shared", []string{w.state(), `job "default", whose model is replicated, not shared`, "--model replicated", "--job NEW", "--state DIR"}},
		{"up --model private", []string{`whose model is replicated, not private`, "--job NEW"}},
		{"run -f clicks.yaml -- true", []string{`whose model is replicated, not shared`, "--state DIR"}},
		{"master --listen 127.0.0.1:0 --http off --model replicated --job ctr --state " + w.state(), []string{`job "default", whose model is replicated, and not job "ctr"`, "--state DIR", "--job default"}},
	} {
		r := w.run(strings.Fields(tc.args)...)
		lines := strings.Count(strings.TrimSpace(r.err), "\n")
		if r.code != exitFailed || strings.Contains(r.err, "goroutine") || lines > 1 {
			t.Errorf("%s: exit code %d\n%s", tc.args, r.code, r.err)
		}
		for _, s := range tc.says {
			if !strings.Contains(r.err, s) {
				t.Errorf("%s: the error does not say %q:\n%s", tc.args, s, r.err)
			}
		}
	}
	w.nothingLeft()
}
