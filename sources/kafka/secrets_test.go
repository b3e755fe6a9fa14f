package kafka

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headrace/headrace/internal/dataset"
)

// A spec comes over the network: it can not name any secret of this machine.
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
		sasl dataset.KafkaSASL
		want string // "": allowed
	}{
		"allowed file":      {dataset.KafkaSASL{PasswordFile: filepath.Join(root, "in")}, ""},
		"file elsewhere":    {dataset.KafkaSASL{PasswordFile: filepath.Join(outside, "out")}, "in no folder that is allowed"},
		"link to elsewhere": {dataset.KafkaSASL{PasswordFile: filepath.Join(root, "link")}, "escapes"},
		"dots":              {dataset.KafkaSASL{PasswordFile: root + "/../" + filepath.Base(outside) + "/out"}, "in no folder that is allowed"},
		"other variable":    {dataset.KafkaSASL{PasswordEnv: "OTHER_SECRET"}, "does not begin with HEADRACE_"},
		"unset variable":    {dataset.KafkaSASL{PasswordEnv: "HEADRACE_NOT_SET"}, "is not set here"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := password(&c.sasl, []string{root})
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
