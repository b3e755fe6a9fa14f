package shardsvc

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"
)

// TestMain runs more random checks than rapid does by default, because they are fast.
// -rapid.checks, -rapid.steps and -rapid.seed are rapid's own flags.
func TestMain(m *testing.M) {
	flag.Parse()
	debug.SetGCPercent(400) // the heap of a small world is small, and collecting it took half of the time
	set := map[string]bool{}
	flag.Visit(func(f *flag.Flag) { set[f.Name] = true })
	for name, value := range map[string]string{"rapid.checks": "1500", "rapid.steps": "80"} {
		if !set[name] && !testing.Short() {
			if err := flag.Set(name, value); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}
