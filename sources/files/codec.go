package files

import (
	"fmt"
	"io"
	"path"
	"strings"
)

// codec is how a file is compressed. Its number is stored in locators.
type codec uint8

const (
	noCodec codec = iota
	gzipCodec
	zstdCodec
	bzip2Codec
)

// compressions are the values of files.compression, except auto and none.
var compressions = []struct {
	codec    codec
	name     string
	suffixes []string
}{
	{gzipCodec, "gzip", []string{".gz", ".gzip"}},
	{zstdCodec, "zstd", []string{".zst", ".zstd"}},
	{bzip2Codec, "bzip2", []string{".bz2"}},
}

func (c codec) String() string {
	for _, k := range compressions {
		if k.codec == c {
			return k.name
		}
	}
	return "none"
}

// codecOf says how the file of that name is compressed. Raw files are given as they
// are, unless the spec says otherwise.
func (s *Source) codecOf(name string) codec {
	said := s.spec.Compression
	if s.framing.Kind.rows() {
		return noCodec // pages and blocks are compressed, not files
	}
	for _, k := range compressions {
		if said == k.name {
			return k.codec
		}
		if said != "" && said != "auto" || s.framing.Kind == Whole {
			continue
		}
		for _, suffix := range k.suffixes {
			if strings.HasSuffix(strings.ToLower(path.Base(name)), suffix) {
				return k.codec
			}
		}
	}
	return noCodec
}

// damage is what is wrong with compressed bytes. It is for good: reading again gives
// the same.
type damage struct {
	codec codec
	at    int64 // byte of the file, about
	what  string
}

func (d *damage) Error() string {
	return fmt.Sprintf("the %s data cannot be read near byte %d of the file: %s", d.codec, d.at, d.what)
}

const cutShort = "it ends in the middle; the file was cut short or is not written to its end yet"

// begin reads a compressed file's content from a restart point on; the zero point is
// the file's beginning. Points that are passed go to n.
func (c codec) begin(f io.ReaderAt, size int64, p point, n notes) (unpacker, error) {
	switch c {
	case gzipCodec:
		return beginGzip(f, size, p, n)
	case zstdCodec:
		return beginZstd(f, size, p, n)
	case bzip2Codec:
		return beginBzip2(f, size, p, n)
	}
	return nil, fmt.Errorf("files: there is no compression of number %d", c)
}

// unpacker gives the content of a compressed file from some place on. Close frees its memory.
// It does not close the file.
type unpacker interface {
	io.Reader
	Close()
}

// suffixes of names of such files, for people.
func (c codec) suffixes() string {
	for _, k := range compressions {
		if k.codec == c {
			return strings.Join(k.suffixes, " or ")
		}
	}
	return ""
}
