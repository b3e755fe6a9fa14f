package starter

import (
	"context"
	"errors"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/headrace/headrace/internal/advice"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/internal/storage"
)

// part is one file of the data that is open, on this machine or on S3.
type part struct {
	io.ReaderAt
	size  int64
	close func() error
}

func openPart(name string) (*part, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	st, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &part{f, st.Size(), f.Close}, nil
}

// objectReader reads one object, as it was when it was opened.
type objectReader struct {
	ctx     context.Context
	objects storage.Objects
	is      storage.Object
}

func (r *objectReader) ReadAt(p []byte, off int64) (int, error) {
	n := min(int64(len(p)), r.is.Size-off)
	if n <= 0 {
		return 0, io.EOF
	}
	if err := r.objects.ReadAt(r.ctx, r.is.Key, r.is.Tag, p[:n], off); err != nil {
		return 0, err
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// bucketOrigin looks at the names below bucket/prefix, or at one object.
func bucketOrigin(ctx context.Context, where string, by Openers) (*origin, error) {
	url := "s3://" + where
	if where == "" {
		return nil, advice.Usage.Errorf("as in s3://lake/clicks", "%s: it needs a bucket", url)
	}
	kind, field := filesKind()
	o := &origin{name: safeName(strings.TrimSuffix(path.Base(where), ending(where))), about: url, kind: kind}
	root, one := url, ""
	objects, err := by.Bucket(by.Connection, root)
	if err != nil {
		return nil, err
	}
	names, err := namesInBucket(ctx, objects)
	if err == nil && len(names) == 0 && strings.Contains(where, "/") {
		root, one = "s3://"+path.Dir(where), path.Base(where)
		if objects, err = by.Bucket(by.Connection, root); err != nil {
			return nil, err
		}
		if _, err = objects.Head(ctx, one); errors.Is(err, storage.ErrNotFound) {
			return nil, advice.NotFound.Errorf("names that begin with . or _ are left out", "%s: there is no such object, and none below it", url)
		}
	}
	if err != nil {
		return nil, err
	}
	if one == "" && len(names) == 0 {
		return nil, advice.NotFound.Errorf("names that begin with . or _ are left out", "%s holds no object", url)
	}
	name, paths := o.files(names, one)
	o.file = root + "/" + name
	o.part = func(ctx context.Context) (*part, error) {
		is, err := objects.Head(ctx, name)
		if err != nil {
			return nil, err
		}
		return &part{&objectReader{ctx, objects, is}, is.Size, func() error { return nil }}, nil
	}
	if err := o.say(ctx); err != nil {
		return nil, err
	}
	o.fields = []string{field + ": " + plain(root)}
	if by.Connection != "" {
		o.fields = append(o.fields, "connection: "+plain(by.Connection))
	}
	if paths != "" {
		o.fields = append(o.fields, "paths: "+dataset.QuoteList([]string{paths}))
	}
	return o, nil
}

func namesInBucket(ctx context.Context, objects storage.Objects) (names []string, err error) {
	for after := ""; len(names) < mostNames; {
		page, err := objects.Page(ctx, "", after)
		if err != nil || len(page) == 0 {
			return names, err
		}
		for _, o := range page {
			parts := strings.Split(o.Key, "/")
			if !slices.ContainsFunc(parts, func(s string) bool { return s == "" || s[0] == '.' || s[0] == '_' }) {
				names = append(names, o.Key)
			}
		}
		after = page[len(page)-1].Key
	}
	return names, nil
}
