package kafka

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/secret"
)

// A spec may come over the network, so it can name only the secrets of this machine that are meant for it.
func TestASpecReadsNoSecretThatIsNotMeantForIt(t *testing.T) {
	t.Setenv("OTHER_SECRET", "x")
	root, outside := t.TempDir(), t.TempDir()
	for dir, name := range map[string]string{root: "in", outside: "out"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("s\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(outside, "out"), filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		word dataset.Password
		want string // "": allowed
	}{
		"allowed file":      {dataset.Password{File: filepath.Join(root, "in")}, ""},
		"file elsewhere":    {dataset.Password{File: filepath.Join(outside, "out")}, "in no folder that is allowed"},
		"link to elsewhere": {dataset.Password{File: filepath.Join(root, "link")}, "escapes"},
		"dots":              {dataset.Password{File: root + "/../" + filepath.Base(outside) + "/out"}, "in no folder that is allowed"},
		"other variable":    {dataset.Password{Env: "OTHER_SECRET"}, "does not begin with HEADRACE_"},
		"unset variable":    {dataset.Password{Env: "HEADRACE_NOT_SET"}, "is not set here"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := secret.Read("kafka.sasl.password", c.word, []string{root})
			if c.want == "" {
				if err != nil || got != "s" {
					t.Errorf("%q, %v", got, err)
				}
			} else if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}
