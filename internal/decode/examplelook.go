package decode

import (
	"errors"
	"math"
)

// ExampleFeature is one feature of a tf.Example, to look at.
type ExampleFeature struct {
	Name   string
	Steps  bool  // a feature list of a SequenceExample: Values are those of all steps
	Values []any // int64, float32 or string
}

// ExampleFeatures are all features of one record, in its order.
func ExampleFeatures(record []byte) ([]ExampleFeature, error) {
	d := &Decoder{}
	d.take(record, 0, len(record))
	var all []ExampleFeature
	for p := d.start; p < d.end; {
		tag, from, end := d.protoField(p, d.end)
		if end < 0 {
			return nil, errors.New(d.noExample(p).reason)
		}
		if tag == field1 || tag == field2 {
			some, err := d.lookAtMap(from, end, tag == field2)
			if err != nil {
				return nil, err
			}
			all = append(all, some...)
		}
		p = end
	}
	return all, nil
}

func (d *Decoder) lookAtMap(p, end int, lists bool) (all []ExampleFeature, err error) {
	for p < end {
		tag, from, next := d.protoField(p, end)
		if next < 0 || tag != field1 {
			return nil, errors.New(d.noExample(p).reason)
		}
		name, value, valueEnd := d.entry(from, next)
		if value < 0 {
			return nil, errors.New(d.noExample(p).reason)
		}
		var at found
		if f := d.find(&at, value, valueEnd, lists); f != nil {
			return nil, errors.New(f.reason)
		}
		n, kind, reason := d.read(at)
		if reason != "" {
			return nil, errors.New(reason)
		}
		one := ExampleFeature{Name: string(name), Steps: lists}
		for i := range n {
			switch kind {
			case int64List:
				one.Values = append(one.Values, d.features.ints[i])
			case floatList:
				one.Values = append(one.Values, math.Float32frombits(d.features.floats[i]))
			case bytesList:
				t := d.features.texts[i]
				one.Values = append(one.Values, string(d.buf[t[0]:t[1]]))
			}
		}
		all, p = append(all, one), next
	}
	return all, nil
}
