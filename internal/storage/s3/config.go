package s3

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

// Config says where a service is and who asks it. The zero value is AWS, with what the
// environment says, as for the aws command.
type Config struct {
	// Endpoint is https://host[:port]. "": AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, or AWS.
	Endpoint string
	// Region: "": AWS_REGION, AWS_DEFAULT_REGION, or the service is asked for the bucket's.
	Region string
	// PathStyle: the bucket is in the path of a URL and not in its host. nil: true for every
	// endpoint but AWS.
	PathStyle *bool
	// AccessKey and SecretKey (and SessionToken) are used as they are. Without them,
	// Profile names one of the aws command's files; without that the chain is asked.
	AccessKey, SecretKey, SessionToken string
	Profile                            string
	Anonymous                          bool   // ask without credentials
	CA                                 string // file of certificates, beside the system's
	// ClearText allows http to a host that is not this machine.
	ClearText bool
	// Prefixes are the s3://bucket/prefix that may be opened; none: all.
	Prefixes []string
}

const (
	tries        = 6 // of a request, with pauses that grow to a second
	answerWithin = 30 * time.Second

	connectWithin  = 10 * time.Second
	partSize       = int64(16 << 20)
	partsAtOnce    = 4
	deletesAtOnce  = 16
	listedAtOnce   = 1000 // the most that S3 allows
	defaultService = "s3.amazonaws.com"
)

// ParseURL takes s3://bucket/prefix apart.
func ParseURL(text string) (bucket, prefix string, err error) {
	rest, ok := strings.CutPrefix(text, "s3://")
	if !ok {
		return "", "", fmt.Errorf("%q is no URL of S3; write s3://BUCKET/PREFIX", text)
	}
	bucket, prefix, _ = strings.Cut(rest, "/")
	prefix = strings.Trim(prefix, "/")
	switch {
	case len(bucket) < 3 || len(bucket) > 63 || strings.Trim(bucket, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "":
		return "", "", fmt.Errorf("%q: %q is no name of a bucket: 3 to 63 small letters, digits, dots and dashes", text, bucket)
	case slices.Contains(strings.Split(prefix, "/"), ".."), strings.ContainsRune(prefix, 0):
		return "", "", fmt.Errorf("%q: a prefix has no .. and no zero byte", text)
	}
	return bucket, prefix, nil
}

// Below reports whether s3://bucket/prefix is outer, or lies below it.
func Below(outer, text string) bool {
	outer = strings.TrimSuffix(outer, "/")
	text = strings.TrimSuffix(text, "/")
	return text == outer || strings.HasPrefix(text, outer+"/")
}

// Open makes a client for s3://bucket/prefix. It asks nothing of the service yet.
func Open(c Config, text string) (*Bucket, error) {
	bucket, prefix, err := ParseURL(text)
	if err != nil {
		return nil, err
	}
	if len(c.Prefixes) > 0 && !slices.ContainsFunc(c.Prefixes, func(p string) bool { return Below(p, text) }) {
		return nil, fmt.Errorf("%s is none of those that the connection allows: %s", text, strings.Join(c.Prefixes, ", "))
	}
	at, err := c.endpoint()
	if err != nil {
		return nil, err
	}
	transport, err := c.transport(at.Scheme == "https")
	if err != nil {
		return nil, err
	}
	creds, err := c.credentials()
	if err != nil {
		return nil, err
	}
	lookup := minio.BucketLookupAuto
	switch {
	case c.PathStyle != nil && !*c.PathStyle:
		lookup = minio.BucketLookupDNS
	case c.PathStyle != nil, at.Host != defaultService:
		lookup = minio.BucketLookupPath
	}
	client, err := minio.New(at.Host, &minio.Options{Creds: creds, Secure: at.Scheme == "https", Transport: conditions{transport},
		Region: c.region(), BucketLookup: lookup, MaxRetries: tries})
	if err != nil {
		return nil, fmt.Errorf("S3 at %s: %w", at.Host, err)
	}
	return &Bucket{client: client, creds: creds, transport: transport, bucket: bucket, prefix: prefix, host: at.Host, region: c.region()}, nil
}

func firstSet(names ...string) string {
	for _, n := range names {
		if v := os.Getenv(n); v != "" {
			return v
		}
	}
	return ""
}

func (c *Config) region() string {
	if c.Region != "" {
		return c.Region
	}
	return firstSet("AWS_REGION", "AWS_DEFAULT_REGION")
}

// Address is host:port of the service.
func (c *Config) Address() (string, error) {
	u, err := c.endpoint()
	if err != nil {
		return "", err
	}
	if u.Port() != "" {
		return u.Host, nil
	}
	return net.JoinHostPort(u.Hostname(), map[bool]string{true: "443", false: "80"}[u.Scheme == "https"]), nil
}

func (c *Config) endpoint() (*url.URL, error) {
	text := c.Endpoint
	if text == "" {
		text = firstSet("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
	}
	if text == "" {
		return &url.URL{Scheme: "https", Host: defaultService}, nil
	}
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" {
		return nil, errors.New("the endpoint of S3 must be https://HOST or https://HOST:PORT, without a path, a query or a login")
	}
	if u.Scheme == "http" && !c.ClearText && !loopback(u.Hostname()) {
		return nil, fmt.Errorf("the endpoint http://%s is not encrypted: use https, or say clear_text: true in the connection if you accept that others on the network read the data", u.Host)
	}
	return u, nil
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

func (c *Config) transport(secure bool) (*http.Transport, error) {
	t := &http.Transport{
		Proxy:                 http.ProxyFromEnvironment,
		DialContext:           dial,
		MaxIdleConnsPerHost:   64,
		IdleConnTimeout:       time.Minute,
		TLSHandshakeTimeout:   connectWithin,
		ResponseHeaderTimeout: answerWithin,
		DisableCompression:    true, // a range of a .gz object is its bytes
	}
	if !secure {
		return t, nil
	}
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	if file := c.CA; file != "" || os.Getenv("AWS_CA_BUNDLE") != "" {
		if file == "" {
			file = os.Getenv("AWS_CA_BUNDLE")
		}
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("the certificates for S3: %w", err)
		}
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the certificates for S3: %s holds none", file)
		}
		t.TLSClientConfig.RootCAs = pool
	}
	return t, nil
}
