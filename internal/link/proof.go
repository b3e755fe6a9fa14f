package link

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
	"unicode"

	"github.com/headrace/headrace/internal/access"
)

// A connection to a master begins with a proof that both sides know the same token
// (docs/PROTOCOL.md, The proof). The token itself is never sent: another user's process
// that listens on a master's port while the master is away learns nothing, and cannot pass
// for the master. The proofs cover the connection (its address, or its TLS session), so
// that they cannot be relayed.
//
//	client  magic, id of the token, client nonce
//	master  0, master nonce, proof    or  1, length, why not
//	client  proof

const (
	proofMagic  = "HEADRAC1"
	nonceBytes  = 32
	proofBytes  = sha256.Size
	longestWhy  = 1024
	proofWithin = 5 * time.Second
	helloBytes  = len(proofMagic) + len(access.ID{}) + nonceBytes
)

const (
	proofGiven   = 0
	proofRefused = 1
)

// ErrRefused means that a master does not accept the caller. The text says why.
var ErrRefused = errors.New("the master does not accept this caller")

// ErrStranger means that the process at a master's address does not know our token.
var ErrStranger = errors.New("this is not our master")

// proofOf is what one side sends to show that it knows the token.
func proofOf(token, side string, id access.ID, client, master []byte, binding string) []byte {
	m := hmac.New(sha256.New, []byte(token))
	fmt.Fprintf(m, "headrace %s\x00%s\x00", side, binding)
	m.Write(id[:])
	m.Write(client)
	m.Write(master)
	return m.Sum(nil)
}

// bindingOf names the connection in a way that both ends agree on and no relay can forge:
// the master's address, or the keys of the TLS session.
func bindingOf(session *tls.ConnectionState, master net.Addr) (string, error) {
	if session == nil {
		return "tcp " + master.String(), nil
	}
	key, err := session.ExportKeyingMaterial("EXPORTER-headrace-proof", nil, 32)
	return "tls " + string(key), err
}

// prove is the client's side. An empty token asks the master what it wants, and is refused.
func prove(ctx context.Context, c net.Conn, session *tls.ConnectionState, token string) error {
	deadline := time.Now().Add(proofWithin)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	if err := c.SetDeadline(deadline); err != nil {
		return err
	}
	id, nonce := access.ID{}, make([]byte, nonceBytes)
	if token != "" {
		id = access.IDOf(token)
	}
	_, _ = rand.Read(nonce) // it never fails
	hello := append(append([]byte(proofMagic), id[:]...), nonce...)
	if _, err := c.Write(hello); err != nil {
		return err
	}
	answer := make([]byte, 1+nonceBytes+proofBytes)
	if _, err := io.ReadFull(c, answer[:1]); err != nil {
		why := "does it want TLS (--tls-cert, --tls-key, --tls-ca), or is it of another version?"
		if session != nil {
			why = "has its --tls-ca signed our certificate?"
		}
		return fmt.Errorf("%w: it ended the connection without an answer; %s (%w)", ErrStranger, why, err)
	}
	if answer[0] != proofGiven {
		return refusal(c)
	}
	if _, err := io.ReadFull(c, answer[1:]); err != nil {
		return fmt.Errorf("%w: %w", ErrStranger, err)
	}
	binding, err := bindingOf(session, c.RemoteAddr())
	if err != nil {
		return err
	}
	masters, proof := answer[1:1+nonceBytes], answer[1+nonceBytes:]
	if token == "" || !hmac.Equal(proof, proofOf(token, "master", id, nonce, masters, binding)) {
		return fmt.Errorf("%w: the process that listens at %s does not know our token, so nothing was sent to it", ErrStranger, c.RemoteAddr())
	}
	if _, err := c.Write(proofOf(token, "client", id, nonce, masters, binding)); err != nil {
		return err
	}
	return c.SetDeadline(time.Time{})
}

func refusal(c net.Conn) error {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return fmt.Errorf("%w: %w", ErrStranger, err)
	}
	text := make([]byte, min(int(size[0])<<8|int(size[1]), longestWhy))
	if _, err := io.ReadFull(c, text); err != nil {
		return fmt.Errorf("%w: %w", ErrStranger, err)
	}
	// It comes from a process that has proven nothing: only print what can be printed.
	return fmt.Errorf("%w: %s", ErrRefused, strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, string(text)))
}

// checkProof is the master's side after the magic was read.
func checkProof(c net.Conn, session *tls.ConnectionState, book *access.Book, wanted string) (access.Caller, error) {
	hello := make([]byte, helloBytes-len(proofMagic))
	if _, err := io.ReadFull(c, hello); err != nil {
		return access.Caller{}, err
	}
	id, nonce := access.ID(hello[:len(access.ID{})]), hello[len(access.ID{}):]
	token, caller, ok := book.Find(id)
	if !ok {
		return access.Caller{}, refuse(c, wanted)
	}
	binding, err := bindingOf(session, c.LocalAddr())
	if err != nil {
		return access.Caller{}, err
	}
	masters := make([]byte, nonceBytes)
	_, _ = rand.Read(masters)
	answer := append(append([]byte{proofGiven}, masters...), proofOf(token, "master", id, nonce, masters, binding)...)
	if _, err := c.Write(answer); err != nil {
		return access.Caller{}, err
	}
	proof := make([]byte, proofBytes)
	if _, err := io.ReadFull(c, proof); err != nil {
		return access.Caller{}, err
	}
	if !hmac.Equal(proof, proofOf(token, "client", id, nonce, masters, binding)) {
		return access.Caller{}, fmt.Errorf("%s names %s and does not know it", c.RemoteAddr(), caller.Name)
	}
	return caller, nil
}

func refuse(c net.Conn, why string) error {
	why = why[:min(len(why), longestWhy)]
	_, err := c.Write(append([]byte{proofRefused, byte(len(why) >> 8), byte(len(why))}, why...))
	return errors.Join(fmt.Errorf("%s shows no token that is known here", c.RemoteAddr()), err)
}

// wantedOf tells a caller without a token where the token lies.
func wantedOf(b *access.Book) string {
	if f := b.Owner(); f != "" {
		return fmt.Sprintf("it wants a token, which lies in %s of user %s: run as that user with --state %s, or pass --token-file", f, ownerOf(f), b.State)
	}
	return "it wants a token: pass --token-file, or set HEADRACE_TOKEN_FILE"
}
