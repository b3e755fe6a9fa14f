package starter

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/headrace/headrace/internal/advice"
)

// containers are forms of files that are not read, each with a way to take the data out.
var containers = []struct {
	at               int
	magic, what, way string
}{
	{0, "PK\x03\x04", "a zip archive", "`unzip -d data FILE`, then `headrace init data`"},
	{257, "ustar", "a tar archive", untar},
	{0, "\x93NUMPY", "an array of numpy", "`python -c \"import numpy; numpy.load('FILE').tofile('data.bin')\"`, then write the spec by hand: docs/DATASETS.md#binary"},
	{0, "\x89HDF", "an HDF5 file", "write it as Parquet, as with pandas: pandas.read_hdf(...).to_parquet(...)"},
	{0, "SQLite format 3", "a database of SQLite", "`sqlite3 -header -csv FILE 'select * from TABLE' > data.csv`, then `headrace init data.csv`"},
	{0, "\xd0\xcf\x11\xe0", "a document of an old Office", office},
}

const (
	untar  = "`mkdir data && tar -C data -xf FILE`, then `headrace init data`"
	office = "save it as CSV in UTF-8 there, then `headrace init data.csv`"
)

// isContainer returns an error if the file is a container. The error says how to take the data
// out.
func (o *origin) isContainer(ctx context.Context) error {
	name := strings.ToLower(o.file)
	refuse := func(what, way string) error {
		return advice.Failed.Errorf(strings.ReplaceAll(way, "FILE", o.file), "%s is %s, which is not read", o.file, what)
	}
	if strings.Contains(name, ".tar.") || strings.HasSuffix(name, ".tgz") {
		return refuse("a tar archive", untar)
	}
	f, err := o.part(ctx)
	if err != nil {
		return err
	}
	defer f.close()
	head := make([]byte, 512)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	for _, c := range containers {
		if n >= c.at+len(c.magic) && string(head[c.at:c.at+len(c.magic)]) == c.magic {
			if strings.HasSuffix(name, ".xlsx") {
				return refuse("a workbook of Excel", office)
			}
			return refuse(c.what, c.way)
		}
	}
	return nil
}
