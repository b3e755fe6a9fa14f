//go:build s3

package main

import (
	"testing"

	"github.com/headrace/headrace/internal/proof/testbroker"
)

// lake is a real S3 server with the bucket lake.
func lake(t *testing.T) *testbroker.S3 {
	t.Helper()
	server, err := testbroker.StartS3(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := server.Bucket("lake"); err != nil {
		t.Fatal(err)
	}
	return server
}

// The chunks of pushed records lie in a bucket. So a master that has lost its state folder restores
// checkpoints from before and after the transition, and goes on with the pushed records.
func TestADatasetReadsItsHistoryFromFilesAndGoesOnInPushedRecordsOnS3(t *testing.T) {
	server := lake(t)
	w := newWorld(t)
	w.env = append(append(w.env, server.Environment()...), "HEADRACE_LANDING_STORAGE=s3://lake/landing")
	w.readsFilesAndGoesOnInPushedRecords(false)
}
