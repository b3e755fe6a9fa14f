//go:build s3

package files

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/headrace/headrace/internal/proof/testbroker"
	"github.com/headrace/headrace/internal/storage/s3"
	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/sourcetest"
)

// server is a real S3 server for all tests of this package.
var server *testbroker.S3

func TestMain(m *testing.M) {
	var err error
	if server, err = testbroker.StartS3(context.Background(), nil); err == nil {
		err = server.Bucket("test")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := server.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// real is a prefix of the server's bucket, written with the library's own client.
type real struct {
	*s3.Bucket
	client *minio.Client
	prefix string
}

var prefixes atomic.Int32

func onServer(t testing.TB) writable {
	t.Helper()
	prefix := fmt.Sprintf("p%d", prefixes.Add(1))
	b, err := s3.Open(s3.Config{Endpoint: server.Endpoint(), Region: "us-east-1", AccessKey: server.AccessKey, SecretKey: server.SecretKey}, "s3://test/"+prefix)
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server.Endpoint())
	if err != nil {
		t.Fatal(err)
	}
	client, err := minio.New(u.Host, &minio.Options{Creds: credentials.NewStaticV4(server.AccessKey, server.SecretKey, ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	return &real{b, client, prefix}
}

func (r *real) put(t testing.TB, name string, content []byte) {
	t.Helper()
	if _, err := r.client.PutObject(context.Background(), "test", r.prefix+"/"+name, bytes.NewReader(content), int64(len(content)), minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
}

func (r *real) remove(t testing.TB, name string) {
	t.Helper()
	if err := r.client.RemoveObject(context.Background(), "test", r.prefix+"/"+name, minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestLinesOnS3PassTheSuite(t *testing.T) {
	sourcetest.Run(t, inBuckets(harness(Framing{Kind: Lines, EmptyLines: true}, "\n", "", "fast", defaultBlocks), onServer))
}

func TestGzippedCSVOnS3PassesTheSuite(t *testing.T) {
	h := packedHarness(harness(Framing{Kind: Lines, Header: true, Text: true}, "\r\n", "a,b\r\n\r\n", "fast", defaultBlocks), ".gz", packGzip)
	sourcetest.Run(t, inBuckets(h, onServer))
}

func TestTFRecordsOnS3PassTheSuite(t *testing.T) {
	sourcetest.Run(t, inBuckets(tfrecordHarness(defaultBlocks), onServer))
}

func TestZstdLinesOnS3PassTheSuite(t *testing.T) {
	h := packedHarness(harness(Framing{Kind: Lines, EmptyLines: true}, "\n", "", "fast", defaultBlocks), ".zst", packZstd)
	sourcetest.Run(t, inBuckets(h, onServer))
}

func TestBzip2OnS3IsRead(t *testing.T) {
	content, err := os.ReadFile("testdata/bzip2/lines.csv.bz2")
	if err != nil {
		t.Fatal(err)
	}
	b := onServer(t)
	b.put(t, "lines.csv.bz2", content)
	s, err := Open(Options{Dataset: "d", Framing: Framing{Kind: Lines, Header: true, Text: true}, Objects: opener(b), Spec: &Spec{Root: "s3://test", MaxRecord: 1 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	got, err := readSource(s)
	if err != nil || len(got) != 5000 || got[0] != "0,value 0" || got[4999] != "4999,value 4999" {
		t.Errorf("%d records: %v", len(got), err)
	}
}

func TestThousandsOfObjectsAreListedPageByPage(t *testing.T) {
	const objects = 2100
	b := onServer(t)
	for i := range objects {
		b.put(t, fmt.Sprintf("dt=%d/part-%05d", i%7, i), []byte("x\n"))
	}
	b.put(t, "other/part", []byte("x\n"))
	s := remote(t, b, "dt=*")
	seen, last := 0, ""
	for {
		if err := s.findFiles(t.Context()); err != nil {
			t.Fatal(err)
		}
		if len(s.list.files) > 1000 {
			t.Fatalf("%d names at once", len(s.list.files))
		}
		for _, n := range s.list.files {
			if n <= last {
				t.Fatalf("%s comes after %s", n, last)
			}
			last = n
			seen++
		}
		s.list.next = len(s.list.files)
		if more, err := s.moreNames(t.Context()); err != nil {
			t.Fatal(err)
		} else if !more {
			break
		}
	}
	if seen != objects {
		t.Errorf("%d names, want %d", seen, objects)
	}
	_, err := namesOf(t, remote(t, b, "dt=9/*.csv"))
	if err == nil || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%v", err)
	}
}

func TestABucketThatIsDeletedInTheMiddleIsNamedAndReadOnWhenItIsBack(t *testing.T) {
	if err := server.Bucket("doomed"); err != nil {
		t.Fatal(err)
	}
	b, err := s3.Open(s3.Config{Endpoint: server.Endpoint(), Region: "us-east-1", AccessKey: server.AccessKey, SecretKey: server.SecretKey}, "s3://doomed/p")
	if err != nil {
		t.Fatal(err)
	}
	r := onServer(t).(*real)
	content := bytes.Repeat([]byte("0123456789abcde\n"), 3<<20/16)
	put := func() {
		if _, err := r.client.PutObject(t.Context(), "doomed", "p/f", bytes.NewReader(content), int64(len(content)), minio.PutObjectOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	put()
	s := remote(t, b)
	segs := sourcetest.Segments(t, s, s.partition, 1)
	if len(segs) != 1 {
		t.Fatalf("got the segments %v, want one", segs)
	}
	whole := sources.Range{Partition: s.partition, Segment: segs[0].ID, Start: segs[0].Start, End: segs[0].End}
	c, err := s.Open(t.Context(), whole, sources.Position{Segment: whole.Segment, Offset: whole.Start}, segs[0].Locator)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var batch sources.Batch
	if err := c.Next(t.Context(), &batch); err != nil || len(batch.Recs) == 0 {
		t.Fatal(err)
	}
	if err := r.client.RemoveObject(t.Context(), "doomed", "p/f", minio.RemoveObjectOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := r.client.RemoveBucket(t.Context(), "doomed"); err != nil {
		t.Fatal(err)
	}
	const want = "there is no bucket doomed"
	refused := func(what string, err error) {
		t.Helper()
		if _, lost := errors.AsType[*sources.Truncated](err); err == nil || lost || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want: %s", what, err, want)
		}
	}
	for err == nil {
		err = c.Next(t.Context(), &batch)
	}
	refused("a reader that had begun", err)
	_, err = readRange(t, s, segs[0], segs[0].Start, segs[0].End)
	refused("a reader that begins", err)
	again := remote(t, b)
	_, err = again.Segments(t.Context(), again.partition, -1, 1)
	refused("listing", err)
	if err := server.Bucket("doomed"); err != nil {
		t.Fatal(err)
	}
	put()
	got, err := readRange(t, s, segs[0], segs[0].Start, segs[0].End)
	if err != nil || len(got) != len(content)/16 {
		t.Errorf("when it is back: %d records, %v", len(got), err)
	}
}

func TestObjectsThatComeLaterOnS3AreListedOnce(t *testing.T) { objectsThatComeLater(t, onServer(t)) }
