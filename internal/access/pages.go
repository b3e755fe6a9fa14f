package access

import (
	"context"
	"fmt"
	"net/http"
	"strings"
)

type callerKey struct{}

// WithCaller makes the caller of a connection known to Pages.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// Pages lets a request through to h if its caller may read the page. The caller has proven
// its token when it connected (WithCaller), or shows it as `Authorization: Bearer TOKEN`, or
// shows a certificate that TLS has verified. Without any of these, and with a token that nobody
// knows, the answer is 401. A known caller without the right gets 403: another token is needed.
func (b *Book) Pages(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		needed, known := NeededForPage(r.URL.Path)
		stranger := strangerOf(r)
		if known && needed == 0 {
			stranger.once(w)
			h.ServeHTTP(w, r)
			return
		}
		c, _ := r.Context().Value(callerKey{}).(Caller)
		if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
			c = b.ByCertificate(r.TLS.VerifiedChains[0][0])
		}
		wrong := false
		if token, shown := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); shown {
			if byToken, ok := b.ByToken(strings.TrimSpace(token)); ok {
				c.Name, c.Roles = byToken.Name, c.Roles|byToken.Roles
			} else {
				wrong = true
			}
		}
		if !known {
			needed = Operator
		}
		if c.Roles&needed != 0 {
			stranger.known()
			h.ServeHTTP(w, r)
			return
		}
		stranger.once(w)
		if c.Name != "" && !wrong {
			http.Error(w, fmt.Sprintf("%s has %s here; this page needs %s", c.Name, c.Roles, needed), http.StatusForbidden)
			return
		}
		w.Header().Set("WWW-Authenticate", `Bearer realm="headrace"`)
		where := ""
		if f := b.Owner(); f != "" {
			where = fmt.Sprintf(": a token of this job lies in %s", f)
		}
		http.Error(w, fmt.Sprintf("this page needs %s; send `Authorization: Bearer TOKEN`%s", needed, where), http.StatusUnauthorized)
	})
}
