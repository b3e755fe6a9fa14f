package archtest

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/headrace/headrace/"

// rules say which of our packages a package, or a tree with /..., may import. The first matching rule
// counts. Tests may import anything. A package without a rule fails the test, so write its rule first.
var rules = []struct {
	pkg    string
	mayUse []string
}{
	{"sources", nil},
	{"sources/sourcetest", []string{"sources", "internal/proof/leaks"}},
	{"sources/landing", []string{"sources", "internal/dataset", "internal/chunk"}},
	{"sources/rocketmq", []string{"sources", "sources/brokers", "internal/dataset", "internal/secret", "internal/remoting", "internal/wallclock"}},
	{"internal/avrofile", []string{"internal/schema"}}, // a format: where records of Avro files lie
	{"sources/files", []string{"sources", "internal/avrofile", "internal/dataset", "internal/parquet", "internal/storage", "internal/tfrecord"}},
	{"sources/brokers", []string{"sources", "internal/dataset"}}, // what the adapters of brokers share
	{"sources/kafka", []string{"sources", "sources/brokers", "internal/dataset", "internal/secret", "internal/wallclock"}},
	{"sources/pulsar", []string{"sources", "sources/brokers", "internal/dataset", "internal/secret", "internal/pulsarwire", "internal/wallclock"}},
	{"internal/tfrecord", nil},                // a format: how its records are framed
	{"internal/parquet", []string{"sources"}}, // a format: files to columns
	{"internal/schema", nil},                  // schemas of Avro and Protobuf
	{"internal/registry", []string{"sources", "internal/decode", "internal/schema"}}, // asks a schema registry while records are read
	{"internal/remoting", nil},   // RocketMQ's protocol, for its adapter and its test broker
	{"internal/pulsarwire", nil}, // the part of Pulsar's protocol that reading needs

	{"shardsvc/cut", []string{"sources"}},  // the definition of a cut: pure values
	{"shardsvc/line", []string{"sources"}}, // pure values
	{"shardsvc/rounds", nil},               // a pure decision
	{"shardsvc/gone", []string{"shardsvc/line"}},
	{"shardsvc", []string{"shardsvc/cut", "shardsvc/gone", "shardsvc/line", "shardsvc/rounds", "sources"}},
	{"shardsvc/oracle", []string{"sources", "shardsvc"}},
	{"shardsvc/wire", []string{"shardsvc", "shardsvc/cut", "api/headrace/v1"}}, // the one translator
	{"shardsvc/serve", []string{"sources", "shardsvc", "shardsvc/cut", "shardsvc/wire", "api/headrace/v1", "internal/dataset", "internal/store", "internal/link"}},
	{"shardsvc/...", []string{"sources", "shardsvc/..."}},

	{"flashckpt/manifest", []string{"shardsvc/cut"}}, // a format, which any program may read
	{"flashckpt/memory", []string{"flashckpt/manifest", "shardsvc/cut"}},
	{"flashckpt/bucket", []string{"flashckpt/manifest", "internal/storage"}},
	{"flashckpt/audit", []string{"sources", "shardsvc/cut"}},

	{"internal/dataset", []string{"sources", "internal/suggest", "internal/storage"}}, // what a kind of source can do
	{"internal/jobfile", []string{"internal/dataset"}},
	{"internal/secret", []string{"internal/dataset"}},
	{"internal/connection", []string{"sources", "internal/dataset", "internal/registry", "internal/schema", "internal/secret", "internal/storage", "internal/storage/s3", "internal/suggest"}}, // which secret goes to which broker
	{"internal/frame", []string{"internal/dataset"}},
	{"internal/decode/...", []string{"sources", "internal/dataset", "internal/frame", "internal/schema", "internal/decode/..."}}, // schemas, not protos
	{"internal/store/...", []string{"internal/store/...", "shardsvc"}},
	{"internal/access", []string{"api/headrace/v1"}}, // which role each call needs
	{"internal/link", []string{"internal/access"}},
	{"internal/storage", nil}, // objects by key: a folder, S3
	{"internal/storage/...", []string{"internal/storage"}},
	{"internal/deadletter", []string{"internal/advice", "internal/terminal"}}, // the form of bad records, and what the verbs about them decide
	{"internal/project", []string{"internal/config"}},                         // a job belongs to a folder
	{"internal/pushing", []string{"connectors/go/push", "internal/advice"}},
	{"internal/chunk", nil}, // the form of pushed records
	{"internal/suggest", nil},
	{"internal/wallclock", nil}, // now, for times that a broker wrote
	{"internal/terminal", nil},
	{"internal/view", []string{"api/headrace/v1", "internal/terminal", "flashckpt/manifest", "shardsvc/cut", "sources"}},
	{"internal/sample", []string{"sources", "internal/advice", "internal/dataset", "internal/decode", "internal/frame", "internal/suggest", "internal/terminal"}},
	{"internal/starter", []string{"sources", "internal/advice", "internal/dataset", "internal/decode", "internal/parquet", "internal/sample", "internal/storage", "internal/tfrecord"}}, // looks at a user's data
	{"internal/ckpt", []string{"api/headrace/v1", "flashckpt/audit", "flashckpt/manifest", "flashckpt/memory", "internal/advice", "internal/suggest", "internal/terminal", "internal/view", "shardsvc/cut", "sources"}},
	{"internal/ckpt/ckpttest", []string{"flashckpt/manifest", "shardsvc/cut", "sources"}},
	{"internal/advice", []string{"api/headrace/v1", "internal/link"}},
	{"internal/proof", nil},
	{"internal/proof/child", nil},
	{"internal/proof/leaks", nil}, // only tests use it
	{"internal/proof/memsource", []string{"sources", "internal/dataset"}},
	{"internal/proof/testbroker/...", []string{"internal/proof/testbroker/...", "internal/remoting"}}, // only tests, the demo and people use it
	{"internal/config", []string{"internal/access", "internal/link", "internal/suggest"}},
	// The demo judges the product from outside, so its report must not use the ledger.
	{"internal/proof/demo/clicklog/...", []string{"internal/proof/demo/..."}},
	{"internal/proof/demo/report/...", []string{"internal/proof/demo/..."}},
	// The simulation runs the real cores, without the processes around them.
	{"internal/proof/sim", []string{"sources", "internal/proof/memsource", "shardsvc", "shardsvc/wire", "shardsvc/cut", "agent/hold", "api/headrace/v1"}},
	{"internal/proof/sim/cmd", []string{"internal/proof/sim"}},
	{"internal/proof/planted", nil}, // patches that an overlay applies: only tests import it
	{"internal/proof/planted/overlay", []string{"internal/proof/planted"}},
	// The chaos test must not use the ledger for its verdict. It reads a checkpoint like any other reader
	// of the format.
	{"internal/proof/chaos/...", []string{"internal/proof/chaos/...", "api/headrace/v1", "internal/link", "internal/chunk", "internal/proof/child", "internal/proof/testbroker", "internal/remoting", "flashckpt/manifest", "flashckpt/memory", "flashckpt/audit", "shardsvc/cut"}},
	{"internal/proof/demo/pushconsumer", nil}, // the alternative is measured with the official client, without our code
	{"internal/proof/demo/produce", []string{"internal/proof/demo/clicklog", "internal/proof/demo/report", "internal/proof/testbroker"}},
	{"internal/proof/demo/...", []string{"internal/proof/demo/...", "examples/...", "api/headrace/v1", "internal/proof/child", "internal/link", "internal/proof/testbroker", "internal/remoting"}},

	{"master/landing", []string{"sources", "shardsvc/serve", "api/headrace/v1", "internal/chunk", "internal/dataset", "internal/storage"}},
	{"master", []string{"flashckpt/bucket", "flashckpt/manifest", "shardsvc/cut", "sources", "shardsvc/serve", "api/headrace/v1", "internal/dataset", "internal/store", "internal/link", "internal/access", "internal/storage", "internal/deadletter", "internal/wallclock", "master/landing"}},
	{"agent/hold", []string{"sources", "api/headrace/v1", "shardsvc/rounds"}}, // pure: keeps leases, also for rounds
	{"agent/supervise", nil},
	{"agent/replica", []string{"api/headrace/v1", "flashckpt/memory", "shardsvc/cut"}}, // knows no trainers
	{"internal/proof/toymaster", []string{"sources", "api/headrace/v1", "internal/dataset", "internal/link"}},
	{"agent/...", []string{"sources", "agent/...", "shardsvc/rounds", "api/headrace/v1", "flashckpt/bucket", "flashckpt/manifest", "flashckpt/memory", "internal/dataset", "internal/decode", "internal/frame", "internal/link"}},

	{"api/...", nil},
	{"cmd/...", []string{"..."}}, // the only place that wires
	{"connectors/go/...", []string{"api/headrace/v1", "internal/chunk", "internal/link"}},
	{"bench/...", []string{"..."}},
	{"examples/...", []string{"..."}},
	{"internal/archtest", nil},
}

type listed struct {
	ImportPath string
	Imports    []string
}

func TestPackagesImportOnlyWhatTheTableAllows(t *testing.T) {
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		i := slices.IndexFunc(rules, func(r struct {
			pkg    string
			mayUse []string
		}) bool {
			return matches(r.pkg, from)
		})
		if i < 0 {
			t.Errorf("%s has no rule: say in this table what it may import", from)
			continue
		}
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			if ours && !slices.ContainsFunc(rules[i].mayUse, func(pattern string) bool { return matches(pattern, to) }) {
				t.Errorf("%s imports %s; it may import %v", from, to, rules[i].mayUse)
			}
		}
	}
}

// These rules hold whatever the table says, so that a row of it that allows too much does not break them.
func TestTheRulesOfTheFrame(t *testing.T) {
	for _, p := range packages(t) {
		from := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range p.Imports {
			to, ours := strings.CutPrefix(imp, module)
			switch {
			case from == "sources" && strings.Contains(strings.Split(imp, "/")[0], "."):
				t.Errorf("sources imports %s; it uses the standard library only", imp)
			case !ours:
			case matches("master/...", from) && matches("agent/...", to), matches("agent/...", from) && matches("master/...", to):
				t.Errorf("%s imports %s: agent and master meet in api", from, to)
			case matches("sources/...", to) && to != "sources" && !outside(from) && !matches("sources/...", from):
				t.Errorf("%s imports the adapter %s: only cmd and tests do", from, to)
			case matches("internal/proof/demo/report/...", from) && matches("shardsvc/...", to):
				t.Errorf("%s imports %s: the proof would not be independent", from, to)
			}
		}
	}
}

func outside(pkg string) bool {
	return matches("cmd/...", pkg) || matches("bench/...", pkg) || matches("examples/...", pkg)
}

func TestNoPackageHasANameThatSaysNothing(t *testing.T) {
	for _, p := range packages(t) {
		if name := path.Base(p.ImportPath); slices.Contains([]string{"util", "utils", "common", "types", "helpers", "helper", "misc", "base"}, name) {
			t.Errorf("%s: a package is named after what it is for", p.ImportPath)
		}
	}
}

func matches(pattern, pkg string) bool {
	if pattern == "..." {
		return true
	}
	if tree, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == tree || strings.HasPrefix(pkg, tree+"/")
	}
	return pattern == pkg
}

// packages lists our packages without their tests.
func packages(t *testing.T) []listed {
	t.Helper()
	out, err := exec.Command("go", "list", "-e", "-json=ImportPath,Imports", module+"...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	if len(all) < 10 {
		t.Fatalf("only %d packages were listed, so this test sees too little", len(all))
	}
	return all
}
