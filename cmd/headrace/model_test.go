package main

import (
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// modelTrainer is a trainer that prints the ids of each step and saves a checkpoint every five steps.
const modelTrainer = `
import os, signal, sys
import headrace
import numpy as np

folder, stop, to, keep = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
headrace.init()
with headrace.dataset("events").batches(100) as stream, headrace.Checkpointer(folder, stream, keep=keep) as ck:
    restored = ck.restore(to if to == "newest" else int(to))
    step = restored.step if restored is not None else 0
    print("restored", step, flush=True)
    for b in stream:
        step = stream.step(step + 1)
        print("step", step, *b["id"].tolist(), flush=True)
        if step % 5 == 0:
            ck.save(step, {"step": np.int64(step)}).wait()
        if step == stop:
            os.kill(os.getpid(), signal.SIGKILL)
print("end", step, flush=True)
`

// trainedKeeping runs a trainer until the data ends, or until it kills itself after the step stop.
// It returns the step that was restored and the ids of all steps. The trainer keeps that many
// checkpoints.
func (w *world) trainedKeeping(stop, keep int) (restored string, ids []int) {
	w.t.Helper()
	r := w.modelTrainer(stop, "newest", keep)
	if r.code == 0 == (stop > 0) {
		w.t.Fatalf("the trainer ended with %+v, want exit code 0 exactly if it does not kill itself (stop is %d)", r, stop)
	}
	for line := range strings.Lines(r.out) {
		if step, ok := strings.CutPrefix(line, "restored "); ok {
			restored = strings.TrimSpace(step)
		}
	}
	return restored, slices.Collect(steppedIn(w.t, r.out))
}

// steppedIn returns the ids in the output of a modelTrainer, in their order.
func steppedIn(t *testing.T, out string) iter.Seq[int] {
	return func(yield func(int) bool) {
		for line := range strings.Lines(out) {
			words := strings.Fields(line)
			if words[0] != "step" {
				continue
			}
			for _, id := range words[2:] {
				n, err := strconv.Atoi(id)
				if err != nil {
					t.Fatal(err)
				}
				if !yield(n) {
					return
				}
			}
		}
	}
}

// modelTrainer runs a trainer that restores the checkpoint of the step to, or the newest one, and
// keeps at most keep checkpoints.
func (w *world) modelTrainer(stop int, to string, keep int) result {
	w.t.Helper()
	return w.startProgram(w.python(), "-c", modelTrainer, w.path("ckpt"), strconv.Itoa(stop), to, strconv.Itoa(keep)).wait()
}

// python returns an interpreter that has our package: the one that HEADRACE_PYTHON names, or the one of `make venv`.
func (w *world) python() string {
	w.t.Helper()
	path := os.Getenv("HEADRACE_PYTHON")
	if path == "" {
		path = "../../.venv/bin/python"
	}
	path, err := filepath.Abs(path)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		w.t.Fatalf("there is no Python with our package: run `make venv` (%v)", err)
	}
	return path
}
