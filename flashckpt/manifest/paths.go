package manifest

import (
	"path"
	"path/filepath"
	"strings"
)

// scheme begins the path of what lies in a bucket: s3://bucket/prefix/... Such a path has
// no "." or "..", and its separator is '/'.
const scheme = "s3://"

// InBucket reports whether a path is one in a bucket.
func InBucket(path string) bool { return strings.HasPrefix(path, scheme) }

// Absolute reports whether a path means the same to every process of a machine.
func Absolute(path string) bool { return InBucket(path) || filepath.IsAbs(path) }

// Join, Dir and Clean are those of package filepath, for paths in buckets too.
func Join(folder string, more ...string) string {
	if rest, ok := strings.CutPrefix(folder, scheme); ok {
		return scheme + path.Join(append([]string{rest}, more...)...)
	}
	return filepath.Join(append([]string{folder}, more...)...)
}

// Dir of a bucket is the bucket.
func Dir(of string) string {
	rest, ok := strings.CutPrefix(of, scheme)
	if !ok {
		return filepath.Dir(of)
	}
	if above := path.Dir(rest); above != "." {
		return scheme + above
	}
	return scheme + rest
}

func Clean(of string) string {
	if rest, ok := strings.CutPrefix(of, scheme); ok {
		return scheme + path.Clean(rest)
	}
	return filepath.Clean(of)
}
