package s3

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/headrace/headrace/internal/storage"
)

// failed names the object and says in one sentence what is wrong and what to do. Sentinels
// of package storage are wrapped; what may go away by itself wraps storage.ErrPassing.
func (b *Bucket) failed(ctx context.Context, key string, err error) error {
	if err == nil {
		return nil
	}
	where := b.url(key)
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", where, context.Cause(ctx))
	}
	if old, is := errors.AsType[*notRenewed](err); is {
		return fmt.Errorf("%s: %w: %w", where, storage.ErrPassing, old)
	}
	var none *noCredentials
	if errors.As(err, &none) {
		return fmt.Errorf("%s: %w", where, none)
	}
	var other *otherBytes
	if errors.As(err, &other) {
		return fmt.Errorf("%s: %w", where, other)
	}
	answer := minio.ToErrorResponse(err)
	if answer.StatusCode == 0 && answer.Code == "" || answer.Code == "InternalError" && answer.StatusCode == 0 {
		return fmt.Errorf("%s: %w", where, b.unreached(err))
	}
	what := b.explain(answer)
	switch {
	case ofProxy(answer):
		return fmt.Errorf("%s: %w: a proxy answers for the service: %s", where, storage.ErrAway, said(answer))
	case what == "" && answer.StatusCode == http.StatusNotFound:
		return fmt.Errorf("%s: %w", where, storage.ErrNotFound)
	case answer.Code == "ConditionalRequestConflict":
		return fmt.Errorf("%s: %w: %w", where, storage.ErrPassing, errConflict)
	case answer.StatusCode == http.StatusPreconditionFailed, answer.Code == minio.PreconditionFailed:
		return fmt.Errorf("%s: %w", where, errPrecondition)
	case answer.StatusCode >= 500, answer.StatusCode == http.StatusTooManyRequests, answer.Code == "SlowDown", answer.Code == "RequestTimeout":
		return fmt.Errorf("%s: %w: the service is busy or broken: %s", where, storage.ErrPassing, said(answer))
	}
	if isExpired(answer.Code) && b.renew() {
		return fmt.Errorf("%s: %w: the service takes the credentials for expired, and new ones are asked for: %s", where, storage.ErrPassing, said(answer))
	}
	if what != "" {
		return fmt.Errorf("%s: %s (the service says %s)", where, what, said(answer))
	}
	return fmt.Errorf("%s: the service refuses: %s", where, said(answer))
}

// otherBytes: an answer is not of the range that was asked for.
type otherBytes struct{ asked, got string }

func (e *otherBytes) Error() string {
	return fmt.Sprintf("the service gave other bytes than were asked for (Range %q, Content-Range %q): check proxies between here and there", e.asked, e.got)
}

// inRange refuses an answer that begins at another byte than the range of the request.
func inRange(opts minio.GetObjectOptions, head http.Header) error {
	asked, got := opts.Header().Get("Range"), head.Get("Content-Range")
	from, _, _ := strings.Cut(strings.TrimPrefix(asked, "bytes="), "-")
	if asked == "" || strings.HasPrefix(got, "bytes "+from+"-") {
		return nil
	}
	return &otherBytes{asked, got}
}

var (
	errPrecondition = errors.New("a condition of the request does not hold")
	errConflict     = errors.New("another conditional request for the object is under way")
)

func said(r minio.ErrorResponse) string {
	text := r.Code
	if r.Message != "" && !strings.EqualFold(r.Message, r.Code) {
		text += ": " + strings.TrimSuffix(firstLine(errors.New(r.Message)), ".")
	}
	if text == "" {
		text = fmt.Sprintf("status %d", r.StatusCode)
	}
	return text
}

// explain returns one sentence for the most common errors, "" for others.
func (b *Bucket) explain(r minio.ErrorResponse) string {
	if isExpired(r.Code) {
		return "the credentials have expired: log in again, or let the role be asked for new ones"
	}
	switch r.Code {
	case minio.NoSuchBucket:
		return fmt.Sprintf("there is no bucket %s at %s: check its name and the connection's endpoint, or make it", b.bucket, b.host)
	case minio.AccessDenied, "AllAccessDisabled":
		return fmt.Sprintf("access is denied: give these credentials s3:ListBucket on %s and s3:GetObject (to write: s3:PutObject, s3:DeleteObject) on its objects", b.bucket)
	case "InvalidAccessKeyId", "InvalidClientTokenId", "XAdminUserNotFound":
		return "the service does not know the access key: check which credentials are used here, and that they belong to this endpoint"
	case "SignatureDoesNotMatch":
		return "the secret key does not fit the access key: check it for missing characters"
	case "RequestTimeTooSkewed", "RequestExpired":
		return "this machine's clock is wrong by more than 15 minutes: set it (timedatectl set-ntp true)"
	case "AuthorizationHeaderMalformed", "InvalidRegion", "IllegalLocationConstraintException", "PermanentRedirect":
		where := "its own"
		if r.Region != "" {
			where = r.Region
		}
		return fmt.Sprintf("bucket %s is in another region than %s: set region (or AWS_REGION) to %s", b.bucket, orUnset(b.region), where)
	case "XAmzContentSHA256Mismatch", "BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch":
		return "the bytes changed on their way to the service: nothing was stored; check proxies between here and there"
	case "EntityTooLarge":
		return "the service takes no object of that size"
	}
	if r.StatusCode == http.StatusForbidden {
		return fmt.Sprintf("access is denied: check the credentials, and that they may read %s", b.bucket)
	}
	if r.StatusCode == http.StatusMovedPermanently || r.StatusCode == http.StatusBadRequest && r.Code == "" {
		return fmt.Sprintf("bucket %s may be in another region than %s, or the request's credentials do not belong here", b.bucket, orUnset(b.region))
	}
	return ""
}

func isExpired(code string) bool {
	switch code {
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "InvalidToken":
		return true
	}
	return false
}

func orUnset(region string) string {
	if region == "" {
		return "the one asked"
	}
	return region
}

// ofProxy says whether a proxy has answered, and not the service. An answer of the service has a
// code of its own (SlowDown), and not the status of the answer. The library takes each 404 for
// NoSuchKey or NoSuchBucket; one of the service has an error in XML, or to a HEAD the id of the
// request.
func ofProxy(r minio.ErrorResponse) bool {
	switch r.StatusCode {
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	case http.StatusServiceUnavailable:
		return r.Code == "" || strings.HasPrefix(r.Code, "503")
	case http.StatusNotFound:
		return r.XMLName.Local != "Error" && r.RequestID == ""
	}
	return false
}

// unreached: no answer came, or not all of it.
func (b *Bucket) unreached(err error) error {
	var name *net.DNSError
	switch text := err.Error(); {
	case errors.As(err, &name):
		return fmt.Errorf("%w: no host of the name %s is found: check the connection's endpoint", storage.ErrAway, name.Name)
	case strings.Contains(text, "x509:"), strings.Contains(text, "tls:"):
		return fmt.Errorf("%s is not trusted: name the file of its authority as ca in the connection: %s", b.host, tail(text))
	case strings.Contains(text, "HTTP response to HTTPS"):
		return fmt.Errorf("%s speaks http and not https: write http:// in the endpoint", b.host)
	case dialed(err), strings.Contains(text, "awaiting response headers"):
		return fmt.Errorf("%w: %s does not answer: %s", storage.ErrAway, b.host, tail(text))
	default:
		return fmt.Errorf("%w: %s does not answer: %s", storage.ErrPassing, b.host, tail(text))
	}
}

// dialed says whether the connection could not be made.
func dialed(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial"
}

// tail drops the URL that net/http begins its errors with: it may be signed.
func tail(text string) string {
	if i := strings.LastIndex(text, `": `); i >= 0 {
		text = text[i+3:]
	}
	return firstLine(errors.New(text))
}
