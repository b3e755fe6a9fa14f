package testbroker

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

// KafkaVersion is what kafka-pom.xml names.
const KafkaVersion = "4.1.1"

//go:embed kafka-pom.xml
var kafkaPOM []byte

// ErrMissing: a program that the broker needs is not on this machine.
var ErrMissing = errors.New("missing")

// jars returns the folder of the broker's jars, fetched if need be.
func jars(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("java"); err != nil {
		return "", fmt.Errorf("%w: java, which runs the Kafka broker; install a JDK or JRE, 17 or newer", ErrMissing)
	}
	cache, err := os.UserCacheDir() // $XDG_CACHE_HOME or ~/.cache
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, "headrace", "kafka-"+KafkaVersion)
	lib := filepath.Join(home, "lib")
	if _, err := os.Stat(lib); err == nil {
		return lib, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(filepath.Join(home, "lock")) // tests of several packages begin together
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(lib); err == nil {
		return lib, nil
	}
	return lib, fetch(ctx, home, lib)
}

// fetch fills lib in one step, so that what is there is complete.
func fetch(ctx context.Context, home, lib string) error {
	if _, err := exec.LookPath("mvn"); err != nil {
		return fmt.Errorf("%w: mvn, which fetches Kafka %s from Maven Central (once, 45 MB, to %s); install Maven 3.6 or newer", ErrMissing, KafkaVersion, home)
	}
	pom := filepath.Join(home, "pom.xml")
	if err := os.WriteFile(pom, kafkaPOM, 0o644); err != nil {
		return err
	}
	part := lib + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DoutputDirectory="+part)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetching Kafka %s with mvn: %w\n%s", KafkaVersion, err, out)
	}
	return os.Rename(part, lib)
}

func lock(name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
}
