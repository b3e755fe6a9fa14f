package shardsvc

// LandedInfo is a transaction that has landed.
type LandedInfo struct {
	Records int64
	When    int64 // ms since 1970
}

// landedValue is `l`.
type landedValue struct{ LandedInfo }

func (v *landedValue) append(b []byte) []byte {
	return appendInt(appendInt(append(b, valueVersion), v.When), v.Records)
}

func decodeLanded(b []byte) (v landedValue, err error) {
	d := open(b)
	v.When, v.Records = d.int(), d.int()
	return v, d.done()
}
