package s3

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// credentials returns those of the connection, or else the first that the chain finds.
func (c *Config) credentials() (*credentials.Credentials, error) {
	switch {
	case c.Anonymous:
		return credentials.NewStatic("", "", "", credentials.SignatureAnonymous), nil
	case c.AccessKey != "" && c.SecretKey != "":
		return credentials.NewStaticV4(c.AccessKey, c.SecretKey, c.SessionToken), nil
	case c.AccessKey != "" || c.SecretKey != "":
		return nil, errors.New("S3 needs both an access key and its secret key, and one of them is missing")
	case c.Profile != "":
		return credentials.New(&chain{links: []link{{"profile " + c.Profile, &credentials.FileAWSCredentials{Profile: c.Profile}}}}), nil
	}
	all := []link{
		{"the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY)", &credentials.EnvAWS{}},
		{"the aws command's files (profile " + profileName() + ")", &credentials.FileAWSCredentials{}},
	}
	if role := c.role(); role != nil {
		all = append(all, *role)
	}
	return credentials.New(&chain{links: all}), nil
}

func profileName() string {
	if p := os.Getenv("AWS_PROFILE"); p != "" {
		return p
	}
	return "default"
}

// role asks a web identity, a container's role or the instance's, whichever the
// environment names. AWS_ENDPOINT_URL_STS and AWS_EC2_METADATA_SERVICE_ENDPOINT say where the
// first and the last are, if they are not at their usual places.
func (c *Config) role() *link {
	name, endpoint := "the instance's role (IMDS)", os.Getenv("AWS_EC2_METADATA_SERVICE_ENDPOINT")
	switch {
	case os.Getenv("AWS_WEB_IDENTITY_TOKEN_FILE") != "":
		name, endpoint = "the web identity (AWS_WEB_IDENTITY_TOKEN_FILE)", os.Getenv("AWS_ENDPOINT_URL_STS")
	case firstSet("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI") != "":
		name, endpoint = "the container's role", ""
	case strings.EqualFold(os.Getenv("AWS_EC2_METADATA_DISABLED"), "true"):
		return nil
	}
	// Where there is no such service, nothing answers: do not wait for long.
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DialContext: (&net.Dialer{Timeout: time.Second}).DialContext, DisableKeepAlives: true}}
	return &link{name, &credentials.IAM{Client: client, Region: c.region(), Endpoint: strings.TrimSuffix(endpoint, "/")}}
}

// chain takes the first that has credentials. Unlike the chain of the library, it never sends
// requests without credentials, and its error says where it looked.
//
// The credentials of a role are renewed when 80% of their time is over. If that fails, the old
// ones are used as long as they hold. It is tried again after renewAgain.
type chain struct {
	links []link
	found credentials.Provider
	last  credentials.Value // the newest that were found
	again time.Time         // a renewal failed: when it is tried again
}

const renewAgain = 10 * time.Second

// renew is called when the service takes the credentials for expired, for example because its
// clock is ahead. The next request looks for new ones. It says whether a role gives them: a
// role has new ones without anybody's help. Those of a file or of the environment are only
// looked at again.
func (b *Bucket) renew() (role bool) {
	v, err := b.creds.GetWithContext(nil)
	b.creds.Expire()
	return err != nil || !v.Expiration.IsZero()
}

type link struct {
	name string
	credentials.Provider
}

func (c *chain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	v, err := c.look(cc)
	switch {
	case err == nil:
		c.last, c.again = v, time.Time{}
	case c.found == nil: // there never were any
	case c.last.Expiration.IsZero() || time.Now().Before(c.last.Expiration):
		c.again = time.Now().Add(renewAgain)
		return c.last, nil
	default:
		err = &notRenewed{err}
	}
	return v, err
}

func (c *chain) look(cc *credentials.CredContext) (credentials.Value, error) {
	var looked []string
	for _, l := range c.links {
		v, err := l.RetrieveWithCredContext(cc)
		if err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "" {
			c.found = l.Provider
			return v, nil
		}
		why := "none"
		if err != nil {
			why = firstLine(err)
		}
		looked = append(looked, l.name+": "+why)
	}
	return credentials.Value{}, &noCredentials{looked}
}

func (c *chain) Retrieve() (credentials.Value, error) { return c.RetrieveWithCredContext(nil) }

func (c *chain) IsExpired() bool {
	switch {
	case c.found == nil:
		return true
	case time.Now().Before(c.again) && time.Now().Before(c.last.Expiration):
		return false
	}
	return c.found.IsExpired()
}

// notRenewed: there were credentials, and their time is over. The service that gives out new
// ones may be away for a moment.
type notRenewed struct{ error }

func (e *notRenewed) Error() string {
	text := e.error.Error()
	if none, is := errors.AsType[*noCredentials](e.error); is {
		text = strings.Join(none.looked, "; ")
	}
	return "the credentials have expired, and there are no new ones yet: " + text
}

// noCredentials says where credentials were looked for, and why none were found.
type noCredentials struct{ looked []string }

func (e *noCredentials) Error() string {
	return fmt.Sprintf("no credentials for S3 were found (%s): set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or name a connection", strings.Join(e.looked, "; "))
}

func firstLine(err error) string {
	text, _, _ := strings.Cut(err.Error(), "\n")
	return text
}
