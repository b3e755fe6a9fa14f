// Command server-s3 runs a real S3 server in the foreground: make server-s3. It prints the environment
// variables that clients need, one per line, and an empty line. Then it reads commands, one per line:
// "put BUCKET/KEY FILE", "get BUCKET/KEY FILE", "delete BUCKET/KEY", "list BUCKET/PREFIX", and "age
// BUCKET/KEY DURATION", which makes the object older. After each answer it prints "done".
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

func main() {
	bucket := flag.String("bucket", "lake", "make this bucket")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *bucket); err != nil {
		fmt.Fprintln(os.Stderr, "server-s3:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, bucket string) error {
	s, err := testbroker.StartS3(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = s.Close() }()
	if err := s.Bucket(bucket); err != nil {
		return err
	}
	client, err := minio.New(strings.TrimPrefix(s.Endpoint(), "http://"),
		&minio.Options{Creds: credentials.NewStaticV4(s.AccessKey, s.SecretKey, ""), Region: "us-east-1"})
	if err != nil {
		return err
	}
	fmt.Println(strings.Join(s.Environment(), "\n") + "\n")
	fmt.Fprintf(os.Stderr, "versitygw %s in %s; Ctrl-C ends it and removes its folder\n", testbroker.S3Version, s.Dir())
	asked := make(chan string)
	go func() { // ends with the process
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			asked <- in.Text()
		}
	}()
	for {
		select {
		case line := <-asked:
			if err := obey(ctx, client, filepath.Join(s.Dir(), "buckets"), strings.Fields(line)); err != nil {
				return err
			}
			fmt.Println("done")
		case <-ctx.Done():
			return s.Stop()
		case <-s.Exited():
			return errors.New("the server ended by itself")
		}
	}
}

func obey(ctx context.Context, client *minio.Client, dir string, words []string) error {
	if len(words) < 2 {
		return fmt.Errorf("unknown command %q", words)
	}
	bucket, key, _ := strings.Cut(words[1], "/")
	switch {
	case words[0] == "put" && len(words) == 3:
		_, err := client.FPutObject(ctx, bucket, key, words[2], minio.PutObjectOptions{})
		return err
	case words[0] == "get" && len(words) == 3:
		return client.FGetObject(ctx, bucket, key, words[2], minio.GetObjectOptions{})
	case words[0] == "delete":
		return client.RemoveObject(ctx, bucket, key, minio.RemoveObjectOptions{})
	case words[0] == "age" && len(words) == 3:
		age, err := time.ParseDuration(words[2])
		if err != nil {
			return err
		}
		then := time.Now().Add(-age)
		return os.Chtimes(filepath.Join(dir, bucket, key), then, then)
	case words[0] == "list":
		for o := range client.ListObjectsIter(ctx, bucket, minio.ListObjectsOptions{Prefix: key, Recursive: true}) {
			if o.Err != nil {
				return o.Err
			}
			fmt.Println(o.Key)
		}
		return nil
	}
	return fmt.Errorf("unknown command %q", words)
}
