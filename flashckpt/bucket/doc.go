// Package bucket keeps checkpoints in a bucket of S3: s3://bucket/prefix is a folder of
// checkpoints as package manifest knows it (docs/CHECKPOINTS.md).
//
//	places.go  which bucket a path lies in
//	fs.go      a bucket as a manifest.FS
//	mirror.go  what a trainer is given: copies of manifests, and of one checkpoint's files
//	sweep.go   removes what killed saves have left
package bucket
