package main

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/sample"
	"github.com/headrace/headrace/internal/terminal"
	"github.com/headrace/headrace/internal/view"
)

func TestSpecsOfSeveralFilesAreTakenTogether(t *testing.T) {
	w := newWorld(t)
	w.clicks(10)
	w.write("views.yaml", strings.Replace(clicksSpec, "clicks", "views", 1))
	out := w.ok("check", "-f", "clicks.yaml", "-f", "views.yaml", "-o", "json")
	if names := decoded[[]sample.Checked](t, out); len(names) != 2 || names[0].Name != "clicks" || names[1].Name != "views" {
		t.Errorf("check of two specs says %s\nwant the datasets clicks and views, in this order", out)
	}
}

func TestExitCodesAndHintsWithoutAMaster(t *testing.T) {
	w := newWorld(t)
	w.clicks(10)
	w.write("bad.yaml", strings.Replace(clicksSpec, "int64", "int", 1))
	w.write("same.yaml", clicksSpec)
	w.write("headrace.bad", "log_level: loud\n")
	long := "/" + strings.Repeat("x", 120)
	for _, tc := range []struct {
		name string
		args string
		code int
		says []string
	}{
		{"unknown verb", "lst", exitUsage, []string{"headrace has no verb lst", "did you mean list?"}},
		{"unknown verb of dataset", "dataset aply", exitUsage, []string{"headrace dataset has no verb aply", "did you mean apply?"}},
		{"unknown verb of deadletter", "deadletter lst", exitUsage, []string{"headrace deadletter has no verb lst", "did you mean list?"}},
		{"shell without a completion", "completion tcsh", exitUsage, []string{"headrace completion has no verb tcsh", "zsh"}},
		{"help of an unknown verb", "help lst", exitUsage, []string{"headrace has no verb lst", "did you mean list?"}},
		{"help of an unknown verb of dataset", "help dataset aply", exitUsage, []string{"headrace dataset has no verb aply", "did you mean apply?"}},
		{"unknown flag", "list --jbo x", exitUsage, []string{"unknown flag: --jbo", "did you mean --job?"}},
		{"missing argument", "describe", exitUsage, []string{"headrace describe needs NAME", "headrace describe --help"}},
		{"bad flag value", "list -o xml", exitUsage, []string{`--output: output: "xml": not one of table, json, yaml`}},
		{"bad settings file", "list --config headrace.bad", exitUsage, []string{`headrace.bad:1: log_level: "loud": not one of debug, info, warn, error`}},
		{"no settings file", "list --config nope", exitUsage, []string{"--config: open nope: no such file or directory"}},
		{"spec with a mistake", "check -f bad.yaml", exitUsage, []string{"bad.yaml:7: decode.columns[1].dtype", "int64"}},
		{"no spec", "apply", exitUsage, []string{"-f names no file", "as in `headrace apply -f clicks.yaml`"}},
		{"dataset in two files", "check -f clicks.yaml -f same.yaml", exitUsage, []string{"dataset clicks is in clicks.yaml and in same.yaml"}},
		{"standard input twice", "check -f - -f -", exitUsage, []string{"-f - is given twice"}},
		{"empty name beside a spec", "check -f clicks.yaml --file=", exitUsage, []string{"-f names no file"}},
		{"spec that is not there", "check -f nope.yaml", exitNotFound, []string{"nope.yaml: no such file or directory"}},
		{"no master", "list", exitUnreachable, []string{"no master answers at 127.0.0.1:7070", "headrace up", "--master"}},
		{"no master where it was named", "list --master 127.0.0.1:1", exitUnreachable, []string{"no master answers at 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused"}},
		{"master elsewhere without TLS", "list --master 10.0.0.1:7070", exitUsage, []string{"--master 10.0.0.1:7070", "--tls-cert"}},
		{"open port without TLS", "master --listen 0.0.0.0:0", exitFailed, []string{"--listen 0.0.0.0:0", "--tls-cert, --tls-key and --tls-ca"}},
		{"socket path too long", "agent --socket " + long, exitUsage, []string{"121 bytes; Linux allows 107"}},
		{"socket path too long in up", "up --socket " + long, exitUsage, []string{"121 bytes; Linux allows 107"}},
		{"nothing to run", "run", exitUsage, []string{"no command: write it after --"}},
		{"nproc that is no number", "run --nproc-per-node x -- true", exitUsage, []string{`--nproc-per-node: "x" is no number`, "headrace run --help"}},
		{"nproc of 0", "run --nproc-per-node 0 -- true", exitUsage, []string{"--nproc-per-node: 0: must be from 1 to 10000"}},
		{"several machines without a master", "run --nnodes 2 -- true", exitUsage, []string{"--nnodes 2: several machines need one master"}},
		{"root that is not there", "up --allow-root /no/such/folder", exitUsage, []string{`--allow-root: allow_root: "/no/such/folder": no such folder`}},
		{"no root for up", "up -f nope.yaml", exitNotFound, []string{"nope.yaml: no such file"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := w.run(strings.Fields(tc.args)...)
			if r.code != tc.code {
				t.Errorf("exit code %d, want %d", r.code, tc.code)
			}
			for _, s := range tc.says {
				if !strings.Contains(r.err, s) {
					t.Errorf("the standard error does not have %q:\n%s", s, r.err)
				}
			}
			if r.out != "" {
				t.Errorf("a command that failed wrote to the standard output: %s", r.out)
			}
		})
	}
	w.nothingLeft()
}

func TestWhatIsInterruptedExitsWith130WhateverItSays(t *testing.T) {
	var said strings.Builder
	a := &app{err: &said}
	if code := a.report(errors.New("interrupted; all processes are ended"), true); code != exitForced || !strings.Contains(said.String(), "all processes") {
		t.Errorf("an interrupted command: exit code %d, want %d and its message: %s", code, exitForced, said.String())
	}
	if code := a.report(errors.New("no space left"), false); code != exitFailed {
		t.Errorf("a command that failed and was not interrupted: exit code %d, want %d", code, exitFailed)
	}
}

func TestHelpOfEveryVerb(t *testing.T) {
	w := newWorld(t)
	for _, args := range []string{"", "up", "run", "master", "agent", "demo", "dataset", "dataset apply", "dataset list", "dataset describe", "dataset peek",
		"dataset check", "dataset pause", "dataset resume", "dataset delete", "dataset status", "status", "top", "version", "deadletter", "ckpt", "ckpt list", "ckpt show", "ckpt verify", "ckpt pin", "ckpt unpin", "ckpt rm", "audit", "rewind", "reclaim", "push"} {
		name := strings.ReplaceAll(strings.TrimSpace("headrace "+args), " ", "-")
		help := w.ok(append(strings.Fields(args), "--help")...)
		golden(t, filepath.Join("help", name+".txt"), help)
		if asked := w.ok(append([]string{"help"}, strings.Fields(args)...)...); asked != help {
			t.Errorf("headrace help %s shows\n%s\nand --help shows\n%s", args, asked, help)
		}
	}
	if err := filepath.WalkDir("testdata/help", func(path string, d fs.DirEntry, err error) error {
		b, _ := os.ReadFile(path)
		if strings.Contains(string(b), w.dir) {
			t.Errorf("%s has a path that exists only on the machine where it was written", path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestVersionSaysProtocolAndBuild(t *testing.T) {
	w := newWorld(t)
	v := decoded[map[string]any](t, w.ok("version", "-o", "json"))
	if v["version"] != "0.1.0-test" || v["protocol"] != 1.0 || v["nvml"] != false || v["go"] == "" {
		t.Errorf("version -o json says %v, want the version and protocol of this build, and no nvml", v)
	}
	if out := w.ok("version"); !strings.HasPrefix(out, "headrace 0.1.0-test (protocol 1, go") || !strings.Contains(out, "without the tag nvml") {
		t.Errorf("version says %q", out)
	}
	if out := w.ok("version", "-o", "yaml"); !strings.HasPrefix(out, "version: 0.1.0-test\nprotocol: 1\n") {
		t.Errorf("version -o yaml says %q", out)
	}
}

func TestCheckCountsErrorsByFieldWithoutAMaster(t *testing.T) {
	w := newWorld(t)
	w.write("data/a.tsv", "1\t2\ta\n0\tx\tb\n1\ty\tc\n\n1\t\td\nz\t4\te\n1\n")
	w.write("clicks.yaml", clicksSpec)
	r := w.run("check", "-f", "clicks.yaml", "-o", "json")
	if r.code != exitFailed || !strings.Contains(r.err, "cannot be decoded: 5") {
		t.Fatalf("check of a file with bad records: %+v, want exit code %d and 5 records that cannot be decoded", r, exitFailed)
	}
	c := decoded[[]sample.Checked](t, r.out)[0]
	if c.Name != "clicks" || c.Records != 6 || c.Bad != 5 || len(c.Fields) != 2 {
		t.Fatalf("check says %+v, want 6 records, 5 of them bad, and errors of two fields", c)
	}
	number, label := c.Fields[0], c.Fields[1]
	if number.Column != "number" || number.Errors+number.Missing != 4 || label.Column != "label" || label.Errors != 1 {
		t.Errorf("the errors by field are %+v, want 4 of number (wrong or missing) and 1 of label", c)
	}
	if !strings.HasPrefix(number.Example, "a.tsv:2: record at offset 6") || !strings.Contains(number.Example, `"x"`) {
		t.Errorf("the example of number's errors is %q, want the record in line 2", number.Example)
	}
	if !strings.HasPrefix(label.Example, "a.tsv:6: record at offset 24") { // the empty line counts as a line, but not as a record
		t.Errorf("the example of label's errors is %q, want the record in line 6", label.Example)
	}
	if r := w.run("check", "-f", "clicks.yaml", "-n", "1"); r.code != exitOK || r.out != "dataset clicks: 1 records, 0 bad (0.0%)\n" {
		t.Errorf("check -n 1: %+v, want one record and none bad", r)
	}
}

func TestCompletionScriptsAreMade(t *testing.T) {
	w := newWorld(t)
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if out := w.ok("completion", shell); !strings.Contains(out, "headrace") || len(out) < 1000 {
			t.Errorf("the completion script of %s has %d bytes, want at least 1000, and the name headrace in it", shell, len(out))
		}
	}
	if out := w.ok("__complete", "list", "-o", ""); !strings.Contains(out, "json") {
		t.Errorf("the completion of -o offers %q, want json among it", out)
	}
}

func TestJSONAndYAMLHaveTheSameFieldsInOrder(t *testing.T) {
	v := view.Status{Dataset: view.Dataset{Name: "a", Reason: "12:30: yes"}, Partition: []view.Partition{}}
	a := &app{out: &output{}}
	j, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if err := terminal.WriteYAML(a.out, v); err != nil {
		t.Fatal(err)
	}
	yaml := a.out.(*output).String()
	at := 0
	for _, key := range []string{"name", "state", "reason", "unit", "passes", "counts", "listed", "partition", "more"} {
		i := strings.Index(yaml[at:], key+":")
		if i < 0 || !strings.Contains(string(j), `"`+key+`"`) {
			t.Fatalf("the field %s is missing in the JSON, or missing or out of order in the YAML\n%s", key, yaml)
		}
		at += i
	}
	if !strings.Contains(yaml, "reason: '12:30: yes'") || !strings.Contains(yaml, "partition: []") {
		t.Errorf("the YAML is\n%s\nwant the reason in quotes, because it looks like another type, and the empty list as []", yaml)
	}
}
