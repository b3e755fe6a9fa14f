package pulsar

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	client "github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/internal/pulsarwire"
)

const (
	connectWithin   = 5 * time.Second
	operationWithin = 10 * time.Second
	aliveEvery      = 5 * time.Second // a frozen broker is noticed after twice this time
)

// newAdmin makes a client of the admin API with the dataset's login and TLS.
func newAdmin(o *Options) (*admin, error) {
	tr := http.DefaultTransport.(*http.Transport).Clone()
	tr.MaxIdleConnsPerHost = 8
	tr.Proxy = nil
	tr.TLSClientConfig = o.TLS
	a := &admin{base: o.Admin, most: adminMost, tr: tr, http: &http.Client{Transport: tr, Timeout: adminWithin}}
	if o.Auth == nil {
		return a, nil
	}
	p, err := o.Auth()
	if err != nil {
		return nil, err
	}
	if err := p.Init(); err != nil {
		return nil, err
	}
	if cert, err := p.GetTLSCertificate(); err != nil {
		return nil, err
	} else if cert != nil {
		// The login is the certificate of our side of TLS.
		tr.TLSClientConfig = o.TLS.Clone()
		tr.TLSClientConfig.Certificates = append(tr.TLSClientConfig.Certificates, *cert)
		return a, nil
	}
	if err := p.WithTransport(tr); err != nil {
		return nil, err
	}
	a.http.Transport = p
	return a, nil
}

// newClient makes the official client. It does not connect yet.
func newClient(o *Options) (client.Client, error) {
	opts := client.ClientOptions{
		URL: o.Service, ConnectionTimeout: connectWithin, OperationTimeout: operationWithin, KeepAliveInterval: aliveEvery,
		TLSConfig: o.TLS, TLSValidateHostname: true,
		Logger:             log.NewLoggerWithSlog(slog.New(quieter{o.Logger.Handler()})),
		MetricsCardinality: client.MetricsCardinalityNone, MetricsRegisterer: prometheus.NewRegistry(),
	}
	if o.Auth != nil {
		p, err := o.Auth()
		if err != nil {
			return nil, err
		}
		opts.Authentication = p
	}
	return client.NewClient(opts)
}

// newWire makes the client that reads. It does not connect yet.
func newWire(o *Options) (*pulsarwire.Client, error) {
	w := pulsarwire.Config{Service: o.Service, TLS: o.TLS, Version: "headrace", ConnectWithin: connectWithin, AnswerWithin: operationWithin, AliveEvery: aliveEvery}
	if o.Auth != nil {
		p, err := o.Auth()
		if err != nil {
			return nil, err
		}
		if err := p.Init(); err != nil {
			return nil, err
		}
		w.Auth = p
	}
	return pulsarwire.NewClient(w)
}

// quieter logs the library's messages at debug level only. If something fails for good, the
// source returns it as an error.
type quieter struct{ slog.Handler }

func (h quieter) Enabled(ctx context.Context, _ slog.Level) bool {
	return h.Handler.Enabled(ctx, slog.LevelDebug)
}

func (h quieter) Handle(ctx context.Context, r slog.Record) error {
	r.Message, r.Level = "pulsar's client: "+r.Message, slog.LevelDebug
	return h.Handler.Handle(ctx, r)
}

func (h quieter) WithAttrs(a []slog.Attr) slog.Handler { return quieter{h.Handler.WithAttrs(a)} }
func (h quieter) WithGroup(n string) slog.Handler      { return quieter{h.Handler.WithGroup(n)} }
