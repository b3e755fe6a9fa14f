// Package storage keeps immutable objects by key, such as chunks of pushed records. A Store
// is a folder, or a bucket of S3 (package s3); the interface asks only for what both have:
// put, get a range, list, delete, put if nothing is there.
//
// An object appears whole or not at all, and is durable when Put returns. Nothing here
// knows what an object holds.
//
// Objects is the other half: reading what others wrote into a bucket, whatever their keys,
// and deleting it.
package storage

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Errors of a Store and of Objects. They are wrapped with the key.
var (
	ErrNotFound = errors.New("it is not there")
	ErrExists   = errors.New("it is there already")
	ErrChanged  = errors.New("another object is in its place")
	// ErrPassing: the storage was not reached or is busy; later the same may work.
	ErrPassing = errors.New("storage: try again later")
	// ErrAway is an ErrPassing: the storage did not answer, or only a proxy did. So nothing is
	// known of the object.
	ErrAway error = away{}
)

type away struct{}

func (away) Error() string { return ErrPassing.Error() }
func (away) Unwrap() error { return ErrPassing }

// Object is one entry of a listing.
type Object struct {
	Key  string
	Size int64 // bytes
	// Tag is the storage's name for this content (S3: its ETag, without quotes). A folder
	// has none.
	Tag      string
	Modified time.Time // zero for a folder
}

// Objects reads and deletes objects that others wrote, whatever their keys. It is safe for
// concurrent use.
type Objects interface {
	// Head is ErrNotFound where there is no object.
	Head(ctx context.Context, key string) (Object, error)
	// ReadAt fills p from an offset of the object, which must have this Tag. Errors: ErrChanged
	// if it has another one, ErrNotFound if there is no object.
	ReadAt(ctx context.Context, key, tag string, p []byte, offset int64) error
	// Page lists at most 1,000 objects whose keys begin with prefix and come after the key
	// `after`, in order of their keys. There may be more, unless the page is empty.
	Page(ctx context.Context, prefix, after string) ([]Object, error)
	// Remove deletes the object if it has this Tag; otherwise the error is ErrChanged. If there
	// is no object, the error is nil or ErrNotFound. If a service does not support the tag as a
	// condition, it deletes whatever is there. So call Head directly before.
	Remove(ctx context.Context, key, tag string) error
	// String says where they are: s3://bucket/prefix.
	String() string
}

// Store is safe for concurrent use. Keys are relative paths with '/': letters, digits and
// any of "-_.=", no empty part, no part that begins with a dot.
type Store interface {
	// Put writes an object, or replaces it. It is durable when Put returns.
	Put(ctx context.Context, key string, data []byte) error
	// PutNew is Put if there is no object with this key; otherwise the error is ErrExists. Of
	// two calls at the same time one wins.
	PutNew(ctx context.Context, key string, data []byte) error
	// Get reads length bytes from offset, or less at the object's end; a negative length
	// reads all the rest. ErrNotFound.
	Get(ctx context.Context, key string, offset, length int64) ([]byte, error)
	// Stat is ErrNotFound where there is no object.
	Stat(ctx context.Context, key string) (Object, error)
	// List lists objects whose keys begin with prefix, in order of their keys, at most
	// max (0: all) after the key `after`. A prefix ends with '/', or is empty.
	List(ctx context.Context, prefix, after string, max int) ([]Object, error)
	// Delete removes objects. One that is not there is no error.
	Delete(ctx context.Context, keys ...string) error
}

// CheckKey is nil for a key that every Store accepts.
func CheckKey(key string) error {
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part[0] == '.' || strings.ContainsFunc(part, func(r rune) bool { return !plain(r) }) {
			return fmt.Errorf("storage: %q is not a key: letters, digits and -_.= between single slashes, and no part may begin with a dot", key)
		}
	}
	return nil
}

func plain(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("-_.=", r)
}
