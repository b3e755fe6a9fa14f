package decode

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/headrace/headrace/internal/frame"
)

// missingValue stands for a value that a message does not have.
type missingValue struct{}

// valuesAt returns the values at a path, as protobuf-go reads the record.
func valuesAt(m protoreflect.Message, path []string) []any {
	field := m.Descriptor().Fields().ByName(protoreflect.Name(path[0]))
	if field == nil {
		return none(path)
	}
	v := m.Get(field)
	switch {
	case field.IsList() && path[1] == "*":
		all := []any{}
		for i := range v.List().Len() {
			all = append(all, valuesIn(field, v.List().Get(i), path[2:])...)
		}
		return all
	case field.IsList():
		i, err := strconv.Atoi(path[1])
		if err != nil || i >= v.List().Len() {
			return none(path)
		}
		return valuesIn(field, v.List().Get(i), path[2:])
	case field.IsMap():
		for k, e := range v.Map().Range {
			if k.String() == path[1] {
				return valuesIn(field.MapValue(), e, path[2:])
			}
		}
		return none(path)
	case field.HasPresence() && !m.Has(field):
		return none(path)
	}
	return valuesIn(field, v, path[1:])
}

func none(path []string) []any {
	for _, token := range path {
		if token == "*" {
			return []any{}
		}
	}
	return []any{missingValue{}}
}

func valuesIn(field protoreflect.FieldDescriptor, v protoreflect.Value, path []string) []any {
	if m := field.Message(); m != nil {
		switch {
		case len(path) > 0:
			return valuesAt(v.Message(), path)
		case m.Name() == "Timestamp":
			s, n := v.Message().Get(m.Fields().ByNumber(1)).Int(), v.Message().Get(m.Fields().ByNumber(2)).Int()
			return []any{s*1000 + int64(math.Floor(float64(n)/1e6))}
		}
		return valuesAt(v.Message(), []string{"value"})
	}
	if len(path) > 0 {
		return none(path)
	}
	if field.Kind() == protoreflect.EnumKind {
		return []any{symbolOf(field.Enum(), v.Enum())}
	}
	return []any{v.Interface()}
}

// enumValue is a number of an enum with its name, or with the number as text if it has no name.
type enumValue struct {
	number int64
	name   string
}

func symbolOf(e protoreflect.EnumDescriptor, n protoreflect.EnumNumber) enumValue {
	if v := e.Values().ByNumber(n); v != nil {
		return enumValue{int64(n), string(v.Name())}
	}
	return enumValue{int64(n), fmt.Sprint(n)}
}

// as converts a value to the form that a column of a dtype has.
func as(v any, dtype string) any {
	switch x := v.(type) {
	case missingValue:
		if dtype == "bytes" || dtype == "string" {
			return elementDefault
		}
		return "7"
	case enumValue:
		if dtype == "int32" || dtype == "int64" {
			return fmt.Sprint(x.number)
		}
		return x.name
	case []byte:
		return string(x)
	case string:
		return x
	case bool:
		return fmt.Sprint(x)
	case float32:
		return fmt.Sprint(float64(x))
	case float64:
		return fmt.Sprint(x)
	case int32:
		return number64(int64(x), dtype)
	case int64:
		return number64(x, dtype)
	case uint32:
		return number64(int64(x), dtype)
	case uint64:
		switch dtype {
		case "float32":
			return fmt.Sprint(float64(float32(x)))
		case "float64":
			return fmt.Sprint(float64(x))
		}
		return fmt.Sprint(x)
	}
	return fmt.Sprintf("%T", v)
}

func number64(v int64, dtype string) string {
	if dtype == "float64" {
		return fmt.Sprint(float64(v))
	}
	return fmt.Sprint(v)
}

func shown(v any) string {
	switch x := v.(type) {
	case []byte:
		return string(x)
	case float32:
		return fmt.Sprint(float64(x))
	}
	return fmt.Sprint(v)
}

// compareProto compares a row with what protobuf-go reads.
func compareProto(f *frame.Frame, row int, m protoreflect.Message) error {
	for i, p := range everyPath {
		path := strings.Split(strings.TrimPrefix(p[0], "/"), "/")
		want, c := valuesAt(m, path), &f.Columns[i]
		var got []any
		if all, ok := c.Row(row).([]any); ok {
			got = all
		} else if got = []any{c.Row(row)}; c.Mask[row] == 0 {
			got = []any{missingValue{}}
		}
		if len(want) == 0 {
			want = []any{missingValue{}} // a row without a value takes the default
		}
		same := len(got) == len(want)
		for k := 0; same && k < len(got); k++ {
			_, no := want[k].(missingValue)
			if _, masked := got[k].(missingValue); masked {
				same = no
				continue
			}
			if no && !strings.Contains(p[0], "*") {
				same = false
				continue
			}
			w := as(want[k], p[1])
			same = shown(got[k]) == w || shown(got[k]) == "NaN" && w == "NaN"
		}
		if !same {
			return fmt.Errorf("%s as %s: %v, want %v", p[0], p[1], got, want)
		}
	}
	return nil
}
