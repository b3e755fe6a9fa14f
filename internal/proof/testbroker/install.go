package testbroker

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// KafkaVersion is the version in kafka-pom.xml.
const KafkaVersion = "4.1.1"

//go:embed kafka-pom.xml
var kafkaPOM []byte

var kafka = software{name: "Kafka", version: KafkaVersion, size: "45 MB", pom: kafkaPOM}

// software is the software of a broker: Maven fetches it once per machine.
type software struct {
	name, version, size string
	pom                 []byte
	// settings is a settings file for Maven. nil: the user's.
	settings []byte
	goal     string // a goal of Maven's dependency plugin; "": copy-dependencies
}

// errMissing means that this machine lacks a program that the broker needs.
var errMissing = errors.New("missing")

// jars returns the folder of the broker's jars. It fetches them if they are not there.
func (s software) jars(ctx context.Context) (string, error) {
	if _, err := exec.LookPath("java"); err != nil {
		return "", fmt.Errorf("%w: java, which runs the %s broker; install a JDK or JRE, 17 or newer", errMissing, s.name)
	}
	cache, err := os.UserCacheDir() // $XDG_CACHE_HOME or ~/.cache
	if err != nil {
		return "", err
	}
	home := filepath.Join(cache, "headrace", strings.ToLower(s.name)+"-"+s.version)
	lib := filepath.Join(home, "lib")
	if _, err := os.Stat(lib); err == nil {
		return lib, nil
	}
	if err := os.MkdirAll(home, 0o755); err != nil {
		return "", err
	}
	unlock, err := lock(ctx, filepath.Join(home, "lock")) // tests of several packages start at the same time
	if err != nil {
		return "", err
	}
	defer unlock()
	if _, err := os.Stat(lib); err == nil {
		return lib, nil
	}
	return lib, s.fetch(ctx, home, lib)
}

// fetch fills lib in one step, so that an existing lib is complete.
func (s software) fetch(ctx context.Context, home, lib string) error {
	if _, err := exec.LookPath("mvn"); err != nil {
		return fmt.Errorf("%w: mvn, which fetches %s %s from Maven Central (once, %s, to %s); install Maven 3.6 or newer", errMissing, s.name, s.version, s.size, home)
	}
	pom := filepath.Join(home, "pom.xml")
	if err := os.WriteFile(pom, s.pom, 0o644); err != nil {
		return err
	}
	part := lib + ".part"
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	args := []string{"-q", "-B", "-f", pom, "dependency:" + cmp.Or(s.goal, "copy-dependencies"), "-DoutputDirectory=" + part}
	if s.settings != nil {
		settings := filepath.Join(home, "settings.xml")
		if err := os.WriteFile(settings, s.settings, 0o644); err != nil {
			return err
		}
		args = append(args, "-s", settings)
	}
	cmd := exec.CommandContext(ctx, "mvn", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetching %s %s with mvn: %w\n%s", s.name, s.version, err, out)
	}
	return os.Rename(part, lib)
}

// lock waits until no other process or goroutine has the lock, or ctx ends.
func lock(ctx context.Context, name string) (unlock func(), err error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		select {
		case <-time.After(pollEvery):
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), f.Close())
		}
	}
}
