package access

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// Files of a state folder. Each line of one is a token. Masters accept all lines, callers
// show the first, so a token is replaced without a gap: put the new one above the old one,
// and remove the old one when everybody has connected again.
const (
	OwnerFile  = "token"        // every role
	ViewerFile = "viewer.token" // for a program that reads /metrics
)

const (
	tokenBytes   = 32
	shortest     = 16 // characters of a token that a person made
	longestFile  = 64 << 10
	ownerOnly    = 0o600
	readByOthers = 0o077
)

// ErrNoToken means that a file that holds tokens is not there.
var ErrNoToken = errors.New("no token is there")

// Keep makes the token files of a state folder that are not there yet. It refuses files
// that another user can read or has made.
func Keep(state string) error {
	for _, name := range []string{OwnerFile, ViewerFile} {
		path := filepath.Join(state, name)
		if _, err := Private(path); !errors.Is(err, ErrNoToken) {
			if err != nil {
				return err
			}
			continue
		}
		if err := write(path); err != nil {
			return fmt.Errorf("token %s: %w", path, err)
		}
	}
	return nil
}

func write(path string) error {
	secret := make([]byte, tokenBytes)
	_, _ = rand.Read(secret) // it never fails
	text := base64.RawURLEncoding.EncodeToString(secret) + "\n"
	// It appears whole: callers read it at any time.
	tmp := path + ".new"
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, ownerOnly)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err := errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// Private reads the tokens of a file that only its owner may read, and that belongs to us
// or to root. Root may read anybody's. Errors: ErrNoToken.
func Private(path string) ([]string, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", path, ErrNoToken)
	}
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	if info.Mode().Perm()&readByOthers != 0 {
		return nil, fmt.Errorf("token %s can be read by other users (mode %04o): remove it, and the master makes a new one when it starts", path, info.Mode().Perm())
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && os.Getuid() != 0 && st.Uid != 0 && int(st.Uid) != os.Getuid() {
		return nil, fmt.Errorf("token %s belongs to uid %d, not to us (%d): choose a state folder of your own with --state", path, st.Uid, os.Getuid())
	}
	return Lines(path)
}

// Lines reads the tokens of a file. Errors: ErrNoToken.
func Lines(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: %w", path, ErrNoToken)
	}
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	if len(text) > longestFile {
		return nil, fmt.Errorf("token %s has %d bytes: that is no file of tokens", path, len(text))
	}
	var all []string
	for line := range bytes.Lines(text) {
		if word := strings.TrimSpace(string(line)); word != "" {
			if err := CheckToken(word); err != nil {
				return nil, fmt.Errorf("token %s: line %d %w", path, len(all)+1, err)
			}
			all = append(all, word)
		}
	}
	if all == nil {
		return nil, fmt.Errorf("token %s is empty: remove it, and the master makes a new one when it starts", path)
	}
	return all, nil
}

// CheckToken says what is wrong with a token. It never quotes it.
func CheckToken(token string) error {
	if len(token) < shortest || strings.ContainsAny(token, " \t\r\n") {
		return fmt.Errorf("is no token: %d characters or more without a space, as `openssl rand -base64 32` makes them", shortest)
	}
	return nil
}
