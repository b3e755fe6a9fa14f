package shardsvc

import (
	"fmt"

	"github.com/headrace/headrace/shardsvc/cut"
)

// cutValue is `c`.
type cutValue struct {
	state             CutState
	order             uint64
	epoch, generation uint32
	incarnation       uint64
	rank, step        int64
	path              string
	body              []byte
}

func (v *cutValue) append(b []byte) []byte {
	b = appendUint(append(b, valueVersion), uint32(v.state))
	b = appendUint(appendUint(appendUint(b, v.order), v.epoch), v.generation)
	b = appendInt(appendInt(appendUint(b, v.incarnation), v.rank), v.step)
	return appendString(appendString(b, v.path), v.body)
}

func decodeCutValue(b []byte) (v cutValue, err error) {
	d := open(b)
	state := d.uint()
	if state >= uint64(cutStates) {
		d.fail(fmt.Errorf("unknown state %d of a cut", state))
	}
	v.state = CutState(state)
	v.order, v.epoch, v.generation = d.uint(), d.u32(), d.u32()
	v.incarnation, v.rank, v.step = d.uint(), d.int(), d.int()
	v.path, v.body = d.string(), d.bytes()
	if err := d.done(); err != nil {
		return v, err
	}
	if v.state == CutVoided {
		return v, nil
	}
	_, err = cut.Decode(v.body)
	return v, err
}

// removedValue is `r`.
type removedValue struct{ number uint64 }

func (v *removedValue) append(b []byte) []byte {
	return appendUint(append(b, valueVersion), v.number)
}

func decodeRemoved(b []byte) (v removedValue, err error) {
	d := open(b)
	v.number = d.uint()
	return v, d.done()
}
