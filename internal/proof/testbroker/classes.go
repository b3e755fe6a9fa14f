package testbroker

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// classes is a file with a broker's classes, parsed and verified (class data sharing of the JVM). With it
// a broker starts with half the CPU time.
type classes struct {
	file  string // the JVM writes the file when it ends
	write bool   // the JVM writes it when it ends
}

// options are the options for the JVM. A JVM ignores options that it does not know, and a file of another
// JVM or of other jars.
func (c classes) options() []string {
	switch {
	case c.file == "":
		return nil
	case c.write:
		return []string{anyJVM, "-XX:ArchiveClassesAtExit=" + c.file}
	}
	return []string{anyJVM, "-Xshare:auto", "-XX:SharedArchiveFile=" + c.file}
}

const anyJVM = "-XX:+IgnoreUnrecognizedVMOptions"

// read is for the other JVMs of a broker one of whose JVMs writes the file.
func (c classes) read() classes {
	if c.write {
		return classes{}
	}
	return c
}

// classesFor gives the file for the jars in lib. It is made once for each machine and JVM: example starts
// a broker that writes it, and stops the broker. If that fails, brokers start without the file, and the
// next one tries again.
func classesFor(ctx context.Context, lib string, example func(context.Context, classes) error) classes {
	c, err := classesOf(ctx, filepath.Dir(lib), example)
	if err != nil {
		return classes{}
	}
	return c
}

// classesOf does what classesFor does. If a JVM writes no file, an empty file records that, for the next calls.
func classesOf(ctx context.Context, home string, example func(context.Context, classes) error) (classes, error) {
	jvm, err := jvmName()
	if err != nil {
		return classes{}, err
	}
	file := filepath.Join(home, "classes-"+jvm+".jsa")
	if c, err := classesIn(file); err == nil {
		return c, nil
	}
	unlock, err := lock(ctx, filepath.Join(home, "lock")) // tests of several packages start at the same time
	if err != nil {
		return classes{}, err
	}
	defer unlock()
	if c, err := classesIn(file); err == nil {
		return c, nil
	}
	part := file + ".part"
	if err := os.RemoveAll(part); err != nil {
		return classes{}, err
	}
	if err := example(ctx, classes{file: part, write: true}); err != nil {
		return classes{}, err
	}
	if _, err := os.Stat(part); errors.Is(err, fs.ErrNotExist) {
		if err := os.WriteFile(part, nil, 0o644); err != nil {
			return classes{}, err
		}
	}
	if err := os.Rename(part, file); err != nil {
		return classes{}, err
	}
	return classesIn(file)
}

func classesIn(file string) (classes, error) {
	info, err := os.Stat(file)
	if err != nil || info.Size() == 0 {
		return classes{}, err
	}
	return classes{file: file}, nil
}

// jvmName names the installed JVM. It changes when the JVM is updated.
func jvmName() (string, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return "", err
	}
	if java, err = filepath.EvalSymlinks(java); err != nil {
		return "", err
	}
	info, err := os.Stat(java)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %d", java, info.Size(), info.ModTime().UnixNano()))
	return fmt.Sprintf("%x", sum[:4]), nil
}
