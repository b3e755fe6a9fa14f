package testbroker

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// adminPatience is long because a broker that has just started on a busy machine may need a minute for its
// first topic.
const adminPatience = 3 * time.Minute

// Admin calls the admin API. path comes after /admin/v2/. An answer other than 2xx is an error.
func (b *Pulsar) Admin(ctx context.Context, method, path string, body any) ([]byte, error) {
	var send io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		send = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, b.AdminURL()+"/admin/v2/"+path, send)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	tr := &http.Transport{DisableKeepAlives: true}
	if b.opts.Secure {
		ca, err := os.ReadFile(b.CA())
		if err != nil {
			return nil, err
		}
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca)
		tr.TLSClientConfig = &tls.Config{RootCAs: pool}
		req.Header.Set("Authorization", "Bearer "+b.token)
	}
	res, err := (&http.Client{Transport: tr, Timeout: adminPatience}).Do(req)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		return answer, fmt.Errorf("pulsar: %s %s: %s: %s", method, path, res.Status, answer)
	}
	return answer, nil
}

// CreateTopic creates a topic in public/default. With partitions 0 it is not partitioned.
func (b *Pulsar) CreateTopic(ctx context.Context, name string, partitions int) error {
	return b.CreateTopicIn(ctx, "public/default", name, partitions)
}

// CreateTopicIn does the same in another namespace.
func (b *Pulsar) CreateTopicIn(ctx context.Context, namespace, name string, partitions int) error {
	path := "persistent/" + namespace + "/" + name
	if partitions == 0 {
		b.created = append(b.created, path+"/stats")
		_, err := b.Admin(ctx, "PUT", path, nil)
		return err
	}
	b.created = append(b.created, path+"/partitioned-stats?perPartition=false")
	_, err := b.Admin(ctx, "PUT", path+"/partitions", partitions)
	return err
}

// Deduplicate makes the broker drop messages in public/default that repeat a number of their producer. If
// this were a setting of the whole broker, each start would wait a minute for topics of the system.
func (b *Pulsar) Deduplicate(ctx context.Context) error {
	_, err := b.Admin(ctx, "POST", "namespaces/public/default/deduplication", true)
	return err
}
