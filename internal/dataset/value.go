package dataset

import (
	"errors"
	"math"
	"strconv"
	"unicode/utf8"
)

var dtypeNames = []string{"bool", "int32", "int64", "float32", "float64", "string", "bytes"}

var dtypeByName = map[string]DType{
	"bool": Bool, "int32": Int32, "int64": Int64,
	"float32": Float32, "float64": Float64, "string": String, "bytes": Bytes,
}

// ParseDType reads a dtype's written name.
func ParseDType(name string) (DType, bool) {
	d, ok := dtypeByName[name]
	return d, ok
}

func (d DType) String() string {
	if d < Bool || d > Bytes {
		return "dtype(" + strconv.Itoa(int(d)) + ")"
	}
	return dtypeNames[d-Bool]
}

// MarshalText writes the name, so that JSON holds "float32".
func (d DType) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

func (d *DType) UnmarshalText(text []byte) error {
	v, ok := ParseDType(string(text))
	if !ok {
		return errors.New("no such dtype: " + strconv.Quote(string(text)))
	}
	*d = v
	return nil
}

// Size is the bytes of one element, 0 for string and bytes.
func (d DType) Size() int {
	switch d {
	case Bool:
		return 1
	case Int32, Float32:
		return 4
	case Int64, Float64:
		return 8
	}
	return 0
}

// ParseValue reads a value written in a spec: a bool, int32, int64, float32,
// float64, string or []byte. The error completes "<field>: <value>: ".
func ParseValue(d DType, text string) (any, error) {
	switch d {
	case Bool:
		switch text {
		case "true", "1":
			return true, nil
		case "false", "0":
			return false, nil
		}
		return nil, errors.New("is not a bool; use true or false")
	case Int32:
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, errors.New("is not an int32")
		}
		return int32(n), nil
	case Int64:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, errors.New("is not an int64")
		}
		return n, nil
	case Float32:
		f, err := parseFloat(text, 32)
		return float32(f), err
	case Float64:
		f, err := parseFloat(text, 64)
		return f, err
	case String:
		if !utf8.ValidString(text) {
			return nil, errors.New("is not UTF-8")
		}
		return text, nil
	case Bytes:
		return []byte(text), nil
	}
	return nil, errors.New("has no dtype")
}

// parseFloat: YAML's own spellings of what is not a number count too.
func parseFloat(text string, bits int) (float64, error) {
	switch text {
	case ".nan", ".NaN", ".NAN":
		return math.NaN(), nil
	case ".inf", "+.inf":
		return math.Inf(1), nil
	case "-.inf":
		return math.Inf(-1), nil
	}
	f, err := strconv.ParseFloat(text, bits)
	if errors.Is(err, strconv.ErrRange) {
		return 0, errors.New("is out of the range of float" + strconv.Itoa(bits))
	}
	if err != nil {
		return 0, errors.New("is not a number")
	}
	return f, nil
}
