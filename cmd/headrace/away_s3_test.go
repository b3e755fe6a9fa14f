//go:build s3

package main

import (
	"bytes"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// A bucket is away for longer than an attempt to read lasts. The dataset, which has an end, waits,
// reports that, and goes on by itself.
func TestADatasetOnS3WaitsForItsBucketWithoutAnEnd(t *testing.T) {
	server := lake(t)
	u, err := url.Parse(server.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	client, err := minio.New(u.Host, &minio.Options{Creds: credentials.NewStaticV4(server.AccessKey, server.SecretKey, ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	const objects, each = 4, 5000
	for o := range objects {
		var b bytes.Buffer
		for i := range each {
			fmt.Fprintf(&b, "%d\t%d\tuser-%d\n", i%2, o*each+i, i%7)
		}
		if _, err := client.PutObject(t.Context(), "lake", fmt.Sprintf("clicks/%d.tsv", o), &b, int64(b.Len()), minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	w := newWorld(t)
	w.env = append(w.env, server.Environment()...)
	w.write("clicks.yaml", strings.Replace(clicksSpec, "root: data", "root: s3://lake/clicks", 1))
	up := w.up("-f", "clicks.yaml")
	const says = "the source has not answered since "
	status := func() string { return w.ok("status", "clicks") }
	up.until("it is listed", func() bool {
		return strings.Contains(w.ok("dataset", "status", "clicks", "-o", "json"), `"listing_complete": true`)
	})
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	w.env = append(w.env, trainerVariable+"=clicks", "HEADRACE_AGENT="+w.socket())
	trainer := w.startProgram(os.Args[0])
	up.until("a try of 30 s", func() bool { return strings.Contains(up.err.String(), "reason=source_away") })
	up.until("the silence is told", func() bool { return strings.Contains(status(), says) })
	if err := server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	up.until("it answers", func() bool { return !strings.Contains(status(), says) })
	const n = objects * each
	if r := trainer.wait(); r.code != 0 || !strings.Contains(r.out, fmt.Sprintf("rows %d sum %d\n", n, n*(n-1)/2)) {
		t.Fatalf("the trainer ended with exit code %d\n%s%s", r.code, r.out, r.err)
	}
	up.stop()
}
