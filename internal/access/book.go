package access

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// ID names a token without telling it: a caller says which token it will prove.
type ID [16]byte

// IDOf returns the ID of a token.
func IDOf(token string) ID {
	sum := hmac.New(sha256.New, []byte("headrace token id"))
	sum.Write([]byte(token))
	return ID(sum.Sum(nil)[:16])
}

// Entry gives roles to the tokens of a file or to certificates of a name.
type Entry struct {
	Roles Roles
	Value string // the file, or the name, in which * matches any letters but a dot
}

// ParseEntry reads "ROLE=VALUE".
func ParseEntry(text string) (Entry, error) {
	role, value, ok := strings.Cut(text, "=")
	if !ok || value == "" {
		return Entry{}, errors.New("not ROLE=..., as in viewer=prometheus")
	}
	r, err := parseRole(role)
	return Entry{r, value}, err
}

// Book is what one process accepts. Files are read again for each caller, so that a token
// can be replaced while the process runs.
type Book struct {
	State string  // folder with the files that Keep makes; "": none
	Token string  // a token with every role; "": none
	Files []Entry // more files of tokens
	Names []Entry // names of certificates
}

// Owner is the file that the user that started the process owns, "" if there is none.
func (b *Book) Owner() string {
	if b.State == "" {
		return ""
	}
	return filepath.Join(b.State, OwnerFile)
}

// Check reads every file once.
func (b *Book) Check() error {
	for _, e := range b.Names {
		if _, err := path.Match(e.Value, ""); err != nil {
			return fmt.Errorf("name %q of a certificate: %w", e.Value, err)
		}
	}
	return b.each(func(string, Caller) bool { return true })
}

// each calls f with every token until f returns false.
func (b *Book) each(f func(token string, c Caller) bool) error {
	if b.Token != "" && !f(b.Token, Caller{"the token of HEADRACE_TOKEN", Owner}) {
		return nil
	}
	read := Private
	files := b.Files
	if b.State != "" {
		files = append([]Entry{{Owner, b.Owner()}, {Viewer, filepath.Join(b.State, ViewerFile)}}, files...)
	}
	var errs []error
	for i, e := range files {
		if b.State == "" || i > 1 {
			read = Lines
		}
		tokens, err := read(e.Value)
		if err != nil {
			errs = append(errs, err)
		}
		for _, t := range tokens {
			if !f(t, Caller{"the token of " + e.Value, e.Roles}) {
				return nil
			}
		}
	}
	return errors.Join(errs...)
}

// Find looks a token up by its ID.
func (b *Book) Find(id ID) (token string, c Caller, ok bool) {
	_ = b.each(func(t string, who Caller) bool { // a file that is gone accepts nobody
		if known := IDOf(t); hmac.Equal(known[:], id[:]) {
			token, c, ok = t, who, true
		}
		return !ok
	})
	return token, c, ok
}

// ByToken looks up a token that was shown.
func (b *Book) ByToken(shown string) (Caller, bool) {
	_, c, ok := b.Find(IDOf(shown)) // hashed: the time does not tell how much of it is right
	return c, ok
}

// ByCertificate gives the roles of a verified certificate: of its common name and of its
// DNS names.
func (b *Book) ByCertificate(cert *x509.Certificate) Caller {
	names := slices.Concat([]string{cert.Subject.CommonName}, cert.DNSNames)
	c := Caller{Name: "certificate " + cert.Subject.CommonName}
	for _, e := range b.Names {
		for _, n := range names {
			if n != "" && matches(e.Value, n) {
				c.Roles |= e.Roles
			}
		}
	}
	return c
}

// matches compares label by label, so that * stays inside of one.
func matches(pattern, name string) bool {
	ok, _ := path.Match(strings.ReplaceAll(pattern, ".", "/"), strings.ReplaceAll(name, ".", "/"))
	return ok
}
