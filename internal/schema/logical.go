package schema

// withLogical is a primitive type with the logical type of an object around it. A logical
// type that does not fit its type is ignored, as Avro's specification says.
func (t *Type) withLogical(o map[string]any) *Type {
	if t.Name != "" {
		return t // a named type has its own
	}
	c := *t
	c.setLogical(o)
	return &c
}

// maxScale is more than any decimal that a float64 can tell from 0.
const maxScale = 1 << 10

func (t *Type) setLogical(o map[string]any) {
	name, _ := o["logicalType"].(string)
	switch k := t.Kind; {
	case name == "decimal" && (k == Bytes || k == Fixed):
		scale, ok := whole(o["scale"])
		if o["scale"] == nil {
			scale, ok = 0, true
		}
		if precision, is := whole(o["precision"]); ok && is && precision >= 1 && scale >= 0 && scale <= min(precision, maxScale) {
			t.Logical, t.Scale = Decimal, scale
		}
	case name == "uuid" && (k == String || k == Fixed && t.Size == 16):
		t.Logical = UUID
	case name == "date" && k == Int:
		t.Logical = Date
	case name == "time-millis" && k == Int:
		t.Logical = TimeMillis
	case name == "time-micros" && k == Long:
		t.Logical = TimeMicros
	case (name == "timestamp-millis" || name == "local-timestamp-millis") && k == Long:
		t.Logical = TimestampMillis
	case (name == "timestamp-micros" || name == "local-timestamp-micros") && k == Long:
		t.Logical = TimestampMicros
	case (name == "timestamp-nanos" || name == "local-timestamp-nanos") && k == Long:
		t.Logical = TimestampNanos
	}
}
