package main

import (
	"strings"
	"testing"
)

// When the binary is called wrongly, it says in one line what the user probably meant, and exits with 2 or 3.
func TestAMisuseIsToldWhatWasMeant(t *testing.T) {
	w := newWorld(t)
	w.clicks(1)
	w.write("train.py", "")
	w.write("rows.csv", "x,label\n1,0\n")
	for _, tc := range []struct {
		args, env, says string
		code            int
	}{
		{"check clicks.yaml", "", "`headrace check -f clicks.yaml`", exitUsage},
		{"dataset apply clicks.yaml", "", "`headrace dataset apply -f clicks.yaml`", exitUsage},
		{"up clicks.yaml", "", "`headrace up -f clicks.yaml`", exitUsage},
		{"run clicks.yaml", "", "`headrace run -f clicks.yaml -- python train.py`", exitUsage},
		{"run train.py 3", "", "`headrace run -- python train.py 3`", exitUsage},
		{"run rows.csv", "", "`headrace init rows.csv` writes a spec", exitUsage},
		{"up rows.csv", "", "`headrace init rows.csv` writes a spec", exitUsage},
		{"check rows.csv", "", "`headrace init rows.csv` writes a spec", exitUsage},
		{"run -f rows.csv -- true", "", "rows.csv is data, and a spec is wanted here", exitUsage},
		{"check -f rows.csv", "", "`headrace init rows.csv` writes a spec", exitUsage},
		{"dataset apply rows.csv", "", "`headrace init rows.csv` writes a spec", exitUsage},
		{"run -f clicks.yaml -- pyton train.py", "", "did you mean python", exitNotFound},
		{"run -- nosuchprogram", "", "there is no program nosuchprogram on PATH", exitNotFound},
		{"check", "", "as in `headrace check -f clicks.yaml`", exitUsage},
		{"describe", "", "headrace describe needs NAME", exitUsage},
		{"audit", "", "headrace audit needs CKPT", exitUsage},
		{"rewind", "", "headrace rewind needs NAME", exitUsage},
		{"push", "", "headrace push needs DATASET", exitUsage},
		{"deadletter list", "", "headrace deadletter list needs DATASET", exitUsage},
		{"deadletter show clicks", "", "headrace deadletter show needs ID", exitUsage},
		{"describe clicks views", "", "headrace describe takes NAME only, and got views too", exitUsage},
		{"version x", "", "headrace version takes no argument, and got x", exitUsage},
		{"init rows.csv --torch --tf", "", "say one of them", exitUsage},
		{"run -- python trian.py", "", "did you mean train.py?", exitNotFound},
		{"trian", "", "`headrace run -- python train.py`", exitUsage},
		{"staus", "", "did you mean status?", exitUsage},
		{"chek -f clicks.yaml", "", "did you mean check?", exitUsage},
		{"run --fersh -- true", "", "did you mean --fresh?", exitUsage},
		{"init", "", "`headrace init data/clicks.csv`", exitUsage},
		{"init s3://", "", "as in s3://lake/clicks", exitUsage},
		{"list", "HEADRACE_MODLE=replicated", "did you mean HEADRACE_MODEL?", exitUsage},
		{"list", "HEADRACE_SOCKET=a.sock", "did you mean HEADRACE_AGENT?", exitUsage},
		{"run -- true", "HEADRACE_RNK=1", "did you mean HEADRACE_RANK?", exitUsage},
	} {
		old := w.env
		if tc.env != "" {
			w.env = append(w.env[:len(w.env):len(w.env)], tc.env)
		}
		r := w.run(strings.Fields(tc.args)...)
		w.env = old
		if r.code != tc.code || !strings.Contains(r.err, tc.says) || strings.Contains(r.err, "goroutine") {
			t.Errorf("%s %s: exit code %d, want %d and %q in\n%s", tc.env, tc.args, r.code, tc.code, tc.says, r.err)
		}
	}
	w.env = append(w.env, "HEADRACE_KAFKA_PASSWORD=x", "HEADRACE_T=1", "HEADRACE_MASTER_PORT=tcp://10.0.0.1:7070", "HEADRACE_SERVICE_HOST=10.0.0.1")
	if r := w.run("list"); r.code != exitUnreachable {
		t.Errorf("with variables like ours that others set: exit code %d, want no complaint\n%s", r.code, r.err)
	}
}
