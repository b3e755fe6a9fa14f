package s3

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/headrace/headrace/internal/storage"
)

// bare removes all credentials from the environment while the test runs.
func bare(t *testing.T) {
	t.Helper()
	for _, v := range os.Environ() {
		if name, _, _ := strings.Cut(v, "="); strings.HasPrefix(name, "AWS_") {
			t.Setenv(name, "")
			_ = os.Unsetenv(name)
		}
	}
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
}

func found(t *testing.T, c Config) (credentials.Value, error) {
	t.Helper()
	creds, err := c.credentials()
	if err != nil {
		t.Fatal(err)
	}
	return creds.GetWithContext(&credentials.CredContext{Client: http.DefaultClient})
}

func TestAWebIdentityIsEnough(t *testing.T) {
	bare(t)
	token := filepath.Join(t.TempDir(), "token")
	refuse := false
	sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		text, _ := os.ReadFile(token)
		if f := r.Form; refuse || f.Get("Action") != "AssumeRoleWithWebIdentity" || f.Get("WebIdentityToken") != string(text) || f.Get("RoleArn") != "arn:aws:iam::1:role/trainer" {
			w.WriteHeader(http.StatusForbidden)
			fmt.Fprint(w, `<ErrorResponse><Error><Code>AccessDenied</Code><Message>the token is not known</Message></Error></ErrorResponse>`)
			return
		}
		fmt.Fprintf(w, `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>`+
			`<AccessKeyId>web-key</AccessKeyId><SecretAccessKey>web-secret</SecretAccessKey><SessionToken>web-session</SessionToken><Expiration>%s</Expiration>`+
			`</Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`, time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	}))
	defer sts.Close()
	if err := os.WriteFile(token, []byte("signed by the cluster"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/trainer")
	t.Setenv("AWS_ENDPOINT_URL_STS", sts.URL+"/")
	if v, err := found(t, Config{}); err != nil || v.AccessKeyID != "web-key" || v.SecretAccessKey != "web-secret" || v.SessionToken != "web-session" {
		t.Error(v, err)
	}
	refuse = true
	if _, err := found(t, Config{}); err == nil || !strings.Contains(err.Error(), "the web identity (AWS_WEB_IDENTITY_TOKEN_FILE): ") || !strings.Contains(err.Error(), "no credentials for S3 were found") {
		t.Error(err)
	}
}

// renewed provides the credentials of a role. They are so old that the next call renews them, unless
// they hold.
type renewed struct {
	value credentials.Value
	err   error
	asked int
	holds bool
}

func (r *renewed) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	r.asked++
	return r.value, r.err
}
func (r *renewed) Retrieve() (credentials.Value, error) { return r.RetrieveWithCredContext(nil) }
func (r *renewed) IsExpired() bool                      { return !r.holds }

// A renewal of a role's credentials fails. The old ones are used until their time is over. Then it is
// an error that may go away by itself. A caller that is told of a permanent one stops its dataset.
func TestARenewalOfCredentialsThatFailsIsNoPermanentError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		role := &renewed{err: errors.New("503")}
		c := credentials.New(&chain{links: []link{{"the role", role}}})
		b := &Bucket{bucket: "models"}
		if _, err := c.GetWithContext(nil); err == nil || errors.Is(b.failed(t.Context(), "x", err), storage.ErrPassing) {
			t.Errorf("without any credentials the error is %v, want a permanent one", err)
		}
		role.value, role.err = credentials.Value{AccessKeyID: "old", SecretAccessKey: "s", Expiration: time.Now().Add(time.Minute)}, nil
		if v, err := c.GetWithContext(nil); err != nil || v.AccessKeyID != "old" {
			t.Error(v, err)
		}
		role.err = errors.New("503")
		asked := role.asked
		for range 3 {
			if v, err := c.GetWithContext(nil); err != nil || v.AccessKeyID != "old" {
				t.Errorf("while the old credentials hold, a failed renewal gave %v, %v", v.AccessKeyID, err)
			}
		}
		if role.asked != asked+1 {
			t.Errorf("the role was asked %d times at once, want one", role.asked-asked)
		}
		time.Sleep(renewAgain)
		if _, err := c.GetWithContext(nil); err != nil || role.asked != asked+2 {
			t.Errorf("after %v the role was asked %d times (%v), want 2", renewAgain, role.asked-asked, err)
		}
		time.Sleep(time.Minute)
		_, err := c.GetWithContext(nil)
		if err = b.failed(t.Context(), "x", err); !errors.Is(err, storage.ErrPassing) || !strings.Contains(err.Error(), "the role: 503") {
			t.Errorf("after the old credentials have ended the error is %v, want ErrPassing", err)
		}
		role.value.AccessKeyID, role.err = "new", nil
		if v, err := c.GetWithContext(nil); err != nil || v.AccessKeyID != "new" {
			t.Error(v, err)
		}
	})
}

// The service takes a role's credentials for expired while they still hold here: its clock is ahead.
// New ones are asked for, and callers try again. Those of a file are read again, too, because
// somebody may have logged in since; but the error is a permanent one.
func TestCredentialsThatTheServiceTakesForExpiredAreLookedForAgain(t *testing.T) {
	bare(t)
	b := answering(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.Header.Get("Authorization"), "Credential=old/") {
			refuse(w, r, http.StatusBadRequest, "ExpiredToken")
			return
		}
		w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
		fmt.Fprint(w, "bytes")
	})
	for _, ends := range []time.Time{time.Now().Add(time.Hour), {}} {
		given := &renewed{holds: true, value: credentials.Value{AccessKeyID: "old", SecretAccessKey: "s", SessionToken: "t", Expiration: ends}}
		c := credentials.New(&chain{links: []link{{"the role", given}}})
		client, err := minio.New(b.host, &minio.Options{Creds: c, Region: "r", BucketLookup: minio.BucketLookupPath, MaxRetries: 1})
		if err != nil {
			t.Fatal(err)
		}
		b.client, b.creds = client, c
		if _, err := b.Get(t.Context(), "x", 0, -1); err == nil || errors.Is(err, storage.ErrPassing) != !ends.IsZero() || !strings.Contains(err.Error(), "expired") {
			t.Errorf("credentials that end at %v: the error is %v", ends, err)
		}
		given.value.AccessKeyID = "new"
		if got, err := b.Get(t.Context(), "x", 0, -1); err != nil || string(got) != "bytes" {
			t.Errorf("credentials that end at %v: new ones were not looked for: %q, %v", ends, got, err)
		}
	}
}

func TestAnInstancesRoleIsEnough(t *testing.T) {
	bare(t)
	imds := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const role = "/latest/meta-data/iam/security-credentials/"
		switch {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token" && r.Header.Get("X-aws-ec2-metadata-token-ttl-seconds") != "":
			fmt.Fprint(w, "a token")
		case r.Header.Get("X-aws-ec2-metadata-token") != "a token": // version 1 of the metadata service is switched off
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path == role:
			fmt.Fprint(w, "trainer")
		case r.URL.Path == role+"trainer":
			_ = json.NewEncoder(w).Encode(map[string]string{"Code": "Success", "AccessKeyId": "role-key", "SecretAccessKey": "role-secret", "Token": "role-session",
				"Expiration": time.Now().Add(time.Hour).UTC().Format(time.RFC3339)})
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer imds.Close()
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", imds.URL)
	if v, err := found(t, Config{}); err != nil || v.AccessKeyID != "role-key" || v.SecretAccessKey != "role-secret" || v.SessionToken != "role-session" {
		t.Error(v, err)
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	if _, err := found(t, Config{}); err == nil || strings.Contains(err.Error(), "IMDS") {
		t.Error(err)
	}
}
