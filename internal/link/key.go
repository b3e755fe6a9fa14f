package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"google.golang.org/grpc/credentials"

	"github.com/headrace/headrace/internal/access"
)

// token is the token that a caller proves to the target, "" if it has none. It is read
// again for each connection: a master that starts for the first time makes it.
func (t Target) token() (string, error) {
	if t.Token != "" {
		return t.Token, nil
	}
	if t.TokenFile != "" {
		all, err := access.Lines(t.TokenFile)
		if err != nil {
			return "", fmt.Errorf("--token-file: %w", err)
		}
		return all[0], nil
	}
	if t.State == "" {
		return "", nil
	}
	all, err := access.Private(filepath.Join(t.State, access.OwnerFile))
	if errors.Is(err, access.ErrNoToken) || errors.Is(err, os.ErrPermission) {
		return "", nil // the master says where it lies
	}
	if err != nil {
		return "", err
	}
	return all[0], nil
}

// TokenPath is the file in which a process of ours finds the token of the target; "" if
// there is none.
func (t Target) TokenPath() string {
	if t.TokenFile != "" {
		return t.TokenFile
	}
	if t.State == "" {
		return ""
	}
	return filepath.Join(t.State, access.OwnerFile)
}

func ownerOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return "?"
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return "?"
	}
	id := strconv.FormatUint(uint64(st.Uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// Credentials prove the target's token on each connection, over TLS if that is on.
func (t Target) Credentials(files TLS) (credentials.TransportCredentials, error) {
	below, err := files.Client()
	if err != nil {
		return nil, err
	}
	return proving{below, t, files.Enabled()}, nil
}

// proving adds the proof to what below does.
type proving struct {
	credentials.TransportCredentials
	target Target
	tls    bool
}

func (p proving) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	token, err := p.target.token()
	if err != nil {
		return nil, nil, err
	}
	c, info, err := p.TransportCredentials.ClientHandshake(ctx, authority, raw)
	if err != nil || token == "" && p.tls { // the certificate alone is the proof
		return c, info, err
	}
	var session *tls.ConnectionState
	if t, ok := info.(credentials.TLSInfo); ok {
		session = &t.State
	}
	if err := prove(ctx, c, session, token); err != nil {
		return nil, nil, err
	}
	return c, info, nil
}

func (p proving) Clone() credentials.TransportCredentials {
	return proving{p.TransportCredentials.Clone(), p.target, p.tls}
}

// Authorize sends the target's token with a request for a page. Call it only if a master of ours
// listens there: unlike the proof, this sends the token itself.
func (t Target) Authorize(r *http.Request) error {
	token, err := t.token()
	if err == nil && token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return err
}
