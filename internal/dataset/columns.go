package dataset

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

func (c *Check) columns(d *DecodeSpec) {
	if len(d.Columns) == 0 {
		c.Fail("decode.columns", "", "must be given: at least one column", columnsHint(d.Format))
	}
	if len(d.Columns) > maxColumns {
		c.Fail("decode.columns", "", fmt.Sprintf("has %d columns; at most %d", len(d.Columns), maxColumns), "")
		return
	}
	seen := map[string]string{}
	for i := range d.Columns {
		at := fmt.Sprintf("decode.columns[%d]", i)
		col := &d.Columns[i]
		c.column(at, col, d)
		c.unique(seen, at+".name", col.Name)
		if col.Weights != "" {
			c.unique(seen, at+".weights", WeightsName(col.Name))
		}
	}
}

// WeightsName is the column that weights: adds to a ragged column.
func WeightsName(column string) string { return column + "_weights" }

func (c *Check) unique(seen map[string]string, at, name string) {
	if name == "" {
		return
	}
	if other, twice := seen[name]; twice {
		c.Fail(at, name, "is the name of "+strings.TrimSuffix(strings.TrimSuffix(other, ".name"), ".weights")+" too", "")
		return
	}
	seen[name] = at
}

func (c *Check) column(at string, col *Column, d *DecodeSpec) {
	switch {
	case col.Name == "":
		c.Fail(at+".name", "", "must be given", "")
	case col.Name[0] == '$':
		c.Fail(at+".name", col.Name, "begins with $, which is kept for our own columns", "")
	case len(col.Name) > maxName || !printable(col.Name):
		c.Fail(at+".name", col.Name, "must be printable and have at most 128 bytes", "")
	}
	if d.Format == "binary" && col.Path == "" {
		c.binaryColumn(at, col, d)
		return
	}
	c.notBinary(at, col, d)
	dtypeOK := c.Among(at+".dtype", col.DType, dtypeNames...)
	paths, pathsOK := c.paths(at, col, d)
	if !dtypeOK || !pathsOK {
		return
	}
	dtype := dtypeByName[col.DType]
	ragged := col.Split != "" || paths[0].Ragged()
	c.shape(at, col, dtype, paths)
	if d.Shaped() && len(col.Shape) > 0 {
		c.fixedShape(at, col, d, dtype, paths)
		ragged = false
	}
	if c.multi(at, col, d, ragged); paths[0].Kind == FromPath {
		c.fromPath(at, col, d)
	}
	c.hash(at, col)
	if col.Missing != "" && col.Missing != "mask" {
		c.Among(at+".missing", col.Missing, "mask")
	}
	c.defaultValue(at, col, d, dtype, ragged)
}

func (c *Check) paths(at string, col *Column, d *DecodeSpec) ([]Path, bool) {
	field, list := at+".path", []string{col.Path}
	switch {
	case col.Path != "" && col.Paths != nil:
		c.Fail(at+".paths", "", "does not go with path", "use path for one value, paths for a matrix column")
		return nil, false
	case col.Paths != nil:
		field, list = at+".paths", col.Paths
	case strings.Contains(col.Path, "..") && slices.Contains([]string{"csv", "tsv"}, d.Format):
		if _, isRun, err := parseRun(col.Path); isRun && err == nil {
			c.Fail(field, col.Path, "is a run of fields", `write paths: ["`+col.Path+`"] for a matrix column`)
			return nil, false
		}
	}
	if col.Path == "" && col.Paths == nil {
		c.Fail(field, "", "must be given: where the value is", pathHint(d.Format))
		return nil, false
	}
	if len(list) == 0 {
		c.Fail(field, "", "is empty", pathHint(d.Format))
		return nil, false
	}
	all, err := ExpandPaths(d.Format, list)
	if err != nil {
		c.Fail(field, "", err.Error(), "")
		return nil, false
	}
	for _, p := range all {
		if !c.path(field, p, d) {
			return nil, false
		}
	}
	return all, true
}

func parseRun(text string) ([]Path, bool, error) {
	from, to, ok := strings.Cut(text, "..")
	if !ok || !allDigits(from) || !allDigits(to) {
		return nil, false, nil
	}
	run, err := expand("csv", text)
	return run, true, err
}

func columnsHint(format string) string {
	if format == "binary" {
		return "as in columns: [{name: x, dtype: float32, shape: [125]}]"
	}
	return "as in columns: [{name: label, path: 0, dtype: float32}]"
}

func pathHint(format string) string {
	switch format {
	case "csv", "tsv":
		return "a field's number from 0, or its name"
	case "json":
		return "a JSON Pointer, as in /user/id or /items/*/price"
	case "tfrecord":
		return featurePathHint
	}
	if Fielded(format) {
		return "a field's name, or for what lies deeper a JSON Pointer, as in /user/id or /items/*/price"
	}
	return "as in path: $value"
}

// path checks what can be known of a path without reading data.
func (c *Check) path(field string, p Path, d *DecodeSpec) bool {
	switch p.Kind {
	case Value:
		if d.Columnar() {
			c.Fail(field, p.String(), "is for records of bytes, and rows of "+d.Format+" have none", pathHint(d.Format))
			return false
		}
	case Key, HeaderValue, Timestamp, Tombstone:
		if c.source.Keyed {
			return true
		}
		c.Fail(field, p.String(), c.source.Name+" have no keys, headers, timestamps or tombstones", "use $value or a field of the record")
		return false
	case FromPath:
		if !c.source.Paths && c.source.Name != "" {
			c.Fail(field, p.String(), "is for files: "+c.source.Name+" have no folders that name values", "use a field of the record")
			return false
		}
	case Pointer:
		if d.Features() && !p.feature() {
			c.Fail(field, p.String(), "is no feature", featurePathHint)
			return false
		}
	case FieldName:
		if d.Header {
			return true // known when a file is opened
		}
		if len(d.Fields) == 0 {
			c.Fail(field, p.Name, "is a name, and fields have none here", "set decode.header: true or decode.fields, or write the field's number")
			return false
		}
		if !slices.Contains(d.Fields, p.Name) {
			hint := "fields are " + clip(strings.Join(d.Fields, ", "))
			if near := Nearest(p.Name, d.Fields); near != "" {
				hint = "did you mean " + near + "?"
			}
			c.Fail(field, p.Name, "is not in decode.fields", hint)
			return false
		}
	case FieldNumber:
		if n := len(d.Fields); n > 0 && p.Number >= n {
			c.Fail(field, strconv.Itoa(p.Number), fmt.Sprintf("decode.fields names only %d fields, 0 to %d", n, n-1), "")
			return false
		}
	}
	return true
}

func (c *Check) shape(at string, col *Column, dtype DType, paths []Path) {
	if col.Paths == nil {
		return
	}
	if dtype == String || dtype == Bytes {
		c.Fail(at+".dtype", col.DType, "cannot be packed into a matrix column", "use a column each, or hash with dtype int64")
	}
	if slices.ContainsFunc(paths, func(p Path) bool { return p.Kind == FromPath }) {
		c.Fail(at+".paths", "", "a value of the file's path is not packed into a matrix column", "use a column of its own, as in path: $path.dt")
	}
	if col.Split != "" || slices.ContainsFunc(paths, Path.Ragged) {
		c.Fail(at+".paths", "", "a matrix column has one value per field; split and * give any number", "use a column each")
	}
}

func (c *Check) multi(at string, col *Column, d *DecodeSpec, ragged bool) {
	for _, f := range []struct{ name, value string }{{"split", col.Split}, {"weights", col.Weights}} {
		if f.value != "" && Fielded(d.Format) {
			c.Fail(at+"."+f.name, f.value, "is for text, and "+d.Format+" has lists", "write a * in the path: /tags/*")
			return
		}
	}
	if col.Split != "" && c.oneByte(at+".split", col.Split) {
		if col.Split == d.Delimiter {
			c.Fail(at+".split", col.Split, "is the delimiter of the format too", "")
		} else if col.Split == d.Quote {
			c.Fail(at+".split", col.Split, "is the quote of the format too", "")
		}
	}
	if col.Weights != "" {
		switch {
		case !ragged:
			c.Fail(at+".weights", col.Weights, "needs split (or a * in the path): it separates a value from its weight", "")
		case !c.oneByte(at+".weights", col.Weights):
		case col.Weights == col.Split:
			c.Fail(at+".weights", col.Weights, "is the split too", "")
		case col.Weights == d.Delimiter || col.Weights == d.Quote:
			c.Fail(at+".weights", col.Weights, "is the delimiter or quote of the format too", "")
		}
	}
	if col.Max < 0 {
		c.Fail(at+".max", strconv.Itoa(col.Max), "is negative", "0 keeps all")
	} else if col.Max > 0 && !ragged {
		c.Fail(at+".max", strconv.Itoa(col.Max), "needs split (or a * in the path): it limits the values of a row", "")
	}
}

// fromPath: what a file's path says is one value.
func (c *Check) fromPath(at string, col *Column, d *DecodeSpec) {
	if col.Split != "" && !Fielded(d.Format) {
		c.Fail(at+".split", col.Split, "does not go with "+col.Path+", which is one value", "remove it")
	}
}

func (c *Check) hash(at string, col *Column) {
	if col.Hash == nil {
		return
	}
	if col.DType != "int64" {
		c.Fail(at+".dtype", col.DType, "does not go with hash, which gives int64", "write dtype: int64")
	}
	if col.Hash.Buckets < 0 {
		c.Fail(at+".hash.buckets", strconv.FormatInt(col.Hash.Buckets, 10), "is negative", "0 keeps all 64 bits")
	}
	if !utf8.ValidString(col.Hash.Salt) {
		c.Fail(at+".hash.salt", col.Hash.Salt, "is not UTF-8", "")
	}
}

// defaultValue: the default of a hashed column is the number itself, so that
// "missing" can have an id of its own.
func (c *Check) defaultValue(at string, col *Column, d *DecodeSpec, dtype DType, ragged bool) {
	if col.Default == nil {
		if d.OnError == "default" && !ragged && col.Missing != "mask" {
			c.Fail(at+".default", "", "must be given, because decode.on_error is default", "or write missing: mask")
		}
		return
	}
	v, err := ParseValue(dtype, *col.Default)
	if err != nil {
		c.Fail(at+".default", *col.Default, err.Error(), "")
		return
	}
	if n, ok := v.(int64); ok && col.Hash != nil && col.Hash.Buckets > 0 && (n < 0 || n >= col.Hash.Buckets) {
		c.Fail(at+".default", *col.Default, fmt.Sprintf("is not a bucket: they are 0 to %d", col.Hash.Buckets-1), "")
	}
}

func (c *Check) eventTime(d *DecodeSpec) {
	p, err := ParsePath(d.Format, d.EventTime)
	if err != nil {
		c.Fail("decode.event_time", d.EventTime, err.Error(), "")
		return
	}
	if p.Ragged() {
		c.Fail("decode.event_time", d.EventTime, "has a *, and a record has one time", "")
		return
	}
	c.path("decode.event_time", p, d)
}
