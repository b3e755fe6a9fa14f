package files

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"

	"github.com/headrace/headrace/internal/storage"
	"github.com/headrace/headrace/sources"
)

// scheme begins the root of files that lie in a bucket.
const scheme = "s3://"

// remote: the files lie in a bucket.
func (f *Spec) remote() bool { return strings.HasPrefix(f.Root, scheme) }

// bucket is the place of files on S3. Its objects are listed page by page and read in
// large ranges, each with the ETag as a condition.
type bucket struct {
	objects storage.Objects
	ahead   *ahead
	pages   pager
	told    sync.Once // unreadable has told of an object
}

func openBucket(o *Options) (*bucket, error) {
	if o.Objects == nil {
		return nil, fmt.Errorf("files.root %s: this program reads no object storage here", o.Spec.Root)
	}
	objects, err := o.Objects(o.Spec.Connection, o.Spec.Root, o.AllowedRoots)
	if err != nil {
		return nil, fmt.Errorf("files.root %s: %w", o.Spec.Root, err)
	}
	return &bucket{objects: objects, ahead: newAhead(objects)}, nil
}

func (b *bucket) close() error {
	b.ahead.close()
	if c, ok := b.objects.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// object is an open object. The ETag that it had when it was opened is a condition of each
// read. It is read by one goroutine at a time.
type object struct {
	bucket  *bucket
	is      storage.Object
	streams streams
	ctx     atomic.Pointer[context.Context] // of the reader that waits; nil: none does
}

func (b *bucket) open(ctx context.Context, name string) (*object, error) {
	is, err := b.objects.Head(ctx, name)
	if err != nil {
		return nil, gone(&placed{err})
	}
	o := &object{bucket: b, is: is}
	return o, nil
}

// gone makes the error for a missing object an fs.ErrNotExist too, as that of a missing file
// is.
func gone(err error) error {
	if errors.Is(err, storage.ErrNotFound) {
		return fmt.Errorf("%w: %w", err, fs.ErrNotExist)
	}
	return err
}

// during makes reads of f end with ctx. Reads of local files do not wait for long.
func during(f file, ctx context.Context) {
	if o, ok := f.(*object); ok {
		o.ctx.Store(&ctx)
	}
}

func (o *object) context() context.Context {
	if ctx := o.ctx.Load(); ctx != nil {
		return *ctx
	}
	return o.bucket.ahead.ctx
}

func (o *object) ReadAt(p []byte, off int64) (int, error) {
	if off >= o.is.Size {
		return 0, io.EOF
	}
	n := min(int64(len(p)), o.is.Size-off)
	if err := o.bucket.ahead.read(o.context(), o, p[:n], off); err != nil {
		return 0, gone(err)
	}
	if n < int64(len(p)) {
		return int(n), io.EOF
	}
	return int(n), nil
}

// Close: there is no handle. What was read ahead stays for the next lease.
func (o *object) Close() error { return nil }

// stamp asks the bucket again.
func (o *object) stamp() (stamp, error) {
	now, err := o.bucket.objects.Head(o.context(), o.is.Key)
	if err != nil {
		return stamp{}, gone(&placed{err})
	}
	return stamp{Size: now.Size, Modified: now.Modified.UnixNano(), Tag: now.Tag}, nil
}

// identityOf is the identity of an object. Its ETag stands for its content, so its time does
// not matter.
func identityOf(s stamp) identity {
	return identity{Size: s.Size, Print: xxhash.Sum64String(s.Tag), Tag: s.Tag}
}

// moved returns the error of a file that was replaced or deleted, if that is why a read failed
// with err. Otherwise it returns nil.
func (s *Source) moved(f file, l *locator, r sources.Range, err error) error {
	if !errors.Is(err, storage.ErrChanged) && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if end := s.finish(f, l, r); end != io.EOF {
		return end
	}
	return nil
}

// pager lists the objects that files.paths name, page by page, in order of their names.
type pager struct {
	patterns []pattern
	prefixes []string // what is listed, in order; none is the beginning of another
	next     int      // of prefixes
	after    string
	from     string // names up to it are not wanted
	// unreadable is called with each key that no path can name.
	unreadable func(key string)
}

// pattern is one entry of files.paths.
type pattern struct {
	text  string
	parts []string
	hit   bool
}

func (s *Source) newPager() pager {
	p, all := pager{unreadable: s.unreadable}, []string(nil)
	for _, text := range s.spec.Paths {
		text = path.Clean(text)
		p.patterns = append(p.patterns, pattern{text: text, parts: strings.Split(text, "/")})
		all = append(all, literal(text))
	}
	slices.Sort(all)
	for _, prefix := range all {
		if n := len(p.prefixes); n == 0 || !strings.HasPrefix(prefix, p.prefixes[n-1]) {
			p.prefixes = append(p.prefixes, prefix)
		}
	}
	return p
}

// literal is what every match of a pattern begins with.
func literal(text string) string {
	if text == "." {
		return ""
	}
	if i := strings.IndexAny(text, `*?[\`); i >= 0 {
		return text[:i]
	}
	return text
}

// unreadable tells once of an object whose key has an empty folder name. Paths of the spec name
// files as a file system does, and there is no such name in one.
func (s *Source) unreadable(key string) {
	s.bucket.told.Do(func() {
		s.log.Warn("an object is not read, because its key has an empty folder name; rename it, and others like it", "object", s.spec.Root+"/"+key)
	})
}

// match reports whether a pattern matches the name, and marks each pattern that does.
func (p *pager) match(name string) bool {
	if name == "" || strings.HasSuffix(name, "/") {
		return false // the mark of a folder
	}
	if name[0] == '/' || strings.Contains(name, "//") {
		p.unreadable(name)
		return false
	}
	parts, any := strings.Split(name, "/"), false
	for i := range p.patterns {
		w := &p.patterns[i]
		if w.text == "." && visible(parts) || w.text == name || strings.HasPrefix(name, w.text+"/") && visible(parts[len(w.parts):]) || fits(w.parts, parts) {
			w.hit, any = true, true
		}
	}
	return any
}

func visible(parts []string) bool {
	return !slices.ContainsFunc(parts, func(s string) bool { return s == "" || hidden(s) })
}

// fits matches a pattern as the local file system's walk does: ** is any number of folders,
// and a folder that matches is taken with all that lies in it.
func fits(pattern, name []string) bool {
	if len(pattern) == 0 {
		return visible(name)
	}
	if len(name) == 0 || name[0] == "" {
		return false
	}
	if pattern[0] == "**" {
		if fits(pattern[1:], name) {
			return true
		}
		return len(name) > 1 && !hidden(name[0]) && fits(pattern, name[1:])
	}
	if name[0][0] == '.' && pattern[0][0] != '.' {
		return false
	}
	ok, err := path.Match(pattern[0], name[0])
	return err == nil && ok && fits(pattern[1:], name[1:])
}

// page gives the objects of the next page that match; none: there are no more.
func (p *pager) page(ctx context.Context, objects storage.Objects) ([]storage.Object, error) {
	for p.next < len(p.prefixes) {
		page, err := objects.Page(ctx, p.prefixes[p.next], p.after)
		if err != nil {
			return nil, err
		}
		if len(page) == 0 {
			p.next, p.after = p.next+1, p.from
			continue
		}
		p.after = page[len(page)-1].Key
		if page = slices.DeleteFunc(page, func(o storage.Object) bool { return !p.match(o.Key) }); len(page) > 0 {
			return page, nil
		}
	}
	return nil, nil
}

// nextPage gives the next names; none: there are no more.
func (b *bucket) nextPage(ctx context.Context, s *Source) ([]string, error) {
	p := &b.pages
	if p.patterns == nil {
		*p = s.newPager()
	}
	page, err := p.page(ctx, b.objects)
	if err != nil || len(page) > 0 {
		names := make([]string, len(page))
		for i, o := range page {
			names[i] = o.Key
		}
		return names, err
	}
	for _, w := range p.patterns {
		if !w.hit {
			return nil, b.nothing(s, w.text)
		}
	}
	return nil, nil
}

func (b *bucket) nothing(s *Source, text string) error {
	switch {
	case text == ".":
		return fmt.Errorf("there is no object below %s: %w", s.spec.Root, fs.ErrNotExist)
	case hasMeta(text):
		return fmt.Errorf("files.paths %q matches no object below %s: %w", text, s.spec.Root, fs.ErrNotExist)
	}
	return fmt.Errorf("there is no object %s below %s: %w", text, s.spec.Root, fs.ErrNotExist)
}
