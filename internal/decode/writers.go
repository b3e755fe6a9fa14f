package decode

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/headrace/headrace/internal/schema"
	"github.com/headrace/headrace/sources"
)

// Schemas gives the schemas of writers. It does no I/O: the reader of the records asks the
// registry for the schemas of a batch before the batch is decoded.
type Schemas interface {
	// Schema returns the schema that a registry has under an id; with Given, the one that
	// the spec gives. An error says why records with it cannot be read. A
	// *sources.Temporary error says nothing of the record: the schema must be asked for.
	Schema(id uint32) (*schema.Schema, error)
}

// Given is the id of the schema that the spec itself gives.
const Given = 0

// WithSchemas says where the schemas of formats avro and protobuf are.
func WithSchemas(s Schemas) Option { return func(o *options) { o.schemas = s } }

// Writing is implemented by sources that have the schemas of their records.
type Writing interface{ Schemas() Schemas }

// SchemasOf are those that a source has; nil: none.
func SchemasOf(src sources.Source) Schemas {
	if w, ok := src.(Writing); ok {
		return w.Schemas()
	}
	return nil
}

// programID is what the head of a record says of it.
type programID struct {
	schema uint32
	index  string // Protobuf: the numbers that name the message, as the record has them
}

// program is how records of one schema are walked, or why they cannot be.
type program struct {
	programID
	avro  *avroProgram
	proto *protoProgram
	err   string
}

// maxPrograms bounds what one decoder keeps. More ids than that are compiled again.
const maxPrograms = 1 << 10

// planWriters prepares for records that have a schema.
func (d *Decoder) planWriters() error {
	d.wants = d.planWants()
	d.programs = map[programID]*program{}
	ds := &d.spec.Decode
	switch {
	case ds.Schema != nil && d.o.schemas != nil:
		s, err := d.o.schemas.Schema(Given)
		if err != nil {
			return err
		}
		d.fixed, err = d.compileSchema(programID{}, s)
		return err
	case ds.Schema == nil && ds.Registry == nil: // the head of each file has it
		if d.o.header == nil {
			d.unbound = true
			return nil
		}
		s, err := schema.ParseAvro(d.o.header)
		if err != nil {
			return err
		}
		d.fixed, err = d.compileSchema(programID{}, s)
		return err
	}
	return nil
}

func (d *Decoder) compileSchema(id programID, s *schema.Schema) (p *program, err error) {
	p = &program{programID: id}
	switch {
	case d.format == "avro" && s.Avro != nil:
		p.avro, err = d.compileAvro(s.Avro)
		return p, err
	case d.format == "protobuf" && s.Proto != nil:
		var m protoreflect.MessageDescriptor
		if id.index == "" {
			m, err = s.Proto.Message(d.spec.Decode.Message)
		} else {
			m, err = s.Proto.ByIndexes(indexes([]byte(id.index))...)
		}
		if err == nil {
			p.proto, err = d.compileProto(m)
		}
		return p, err
	}
	return nil, fmt.Errorf("it is a schema of another kind than decode.format, which is %s", d.format)
}

// programOf finds the program of the current record and where its value begins.
func (d *Decoder) programOf() (prog *program, at int, f *fault, err error) {
	if d.fixed != nil {
		return d.fixed, d.start, nil, nil
	}
	if d.end-d.start < wireHead || d.buf[d.start] != 0 {
		return nil, 0, &fault{value: d.buf[d.start:min(d.end, d.start+wireHead)],
			reason: "is not in the registry's wire format, which begins with a byte 0 and 4 bytes of schema id"}, nil
	}
	id, head := binary.BigEndian.Uint32(d.buf[d.start+1:]), d.start+wireHead
	if d.format == "protobuf" {
		if head = indexesEnd(d.buf[:d.end], head); head < 0 {
			return nil, 0, &fault{at: wireHead, value: d.buf[d.start:min(d.end, d.start+2*wireHead)],
				reason: "does not say which message it is: in the registry's wire format, numbers follow the schema id"}, nil
		}
	}
	index := d.buf[d.start+wireHead : head]
	if d.last == nil || d.last.schema != id || d.last.index != string(index) {
		if d.last = d.programs[programID{id, string(index)}]; d.last == nil {
			if d.last, err = d.newProgram(programID{id, string(index)}); err != nil {
				return nil, 0, nil, err
			}
		}
	}
	if d.last.err != "" {
		return nil, 0, &fault{at: 1, value: d.buf[d.start : d.start+wireHead], reason: d.last.err}, nil
	}
	return d.last, head, nil, nil
}

// wireHead is the length of a registry's header: a byte 0 and the id, big-endian. In front
// of a Protobuf message follow the numbers that name it.
const wireHead = 5

// maxIndexes is how deep a message may be defined in others.
const maxIndexes = 32

// indexesEnd is where the numbers end that begin at p; -1: they do not. A count and the
// numbers are written as Avro writes an int; a count of 0 means the first message.
func indexesEnd(b []byte, p int) int {
	count, n := binary.Varint(b[p:])
	if n <= 0 || count < 0 || count > maxIndexes {
		return -1
	}
	for p += n; count > 0; count-- {
		if _, n = binary.Varint(b[p:]); n <= 0 {
			return -1
		}
		p += n
	}
	return p
}

// indexes are the numbers that indexesEnd has seen.
func indexes(b []byte) []int {
	count, n := binary.Varint(b)
	if count == 0 {
		return []int{0}
	}
	list := make([]int, count)
	for i := range list {
		b = b[n:]
		var v int64
		v, n = binary.Varint(b)
		list[i] = int(max(-1, min(v, math.MaxInt32)))
	}
	return list
}

func (d *Decoder) newProgram(id programID) (*program, error) {
	if d.o.schemas == nil {
		return nil, errors.New("decode: no registry was given")
	}
	var p *program
	s, err := d.o.schemas.Schema(id.schema)
	if err == nil {
		p, err = d.compileSchema(id, s)
	}
	if _, temporary := errors.AsType[*sources.Temporary](err); temporary {
		return nil, err
	}
	if err != nil {
		return &program{programID: id, err: fmt.Sprintf("its schema %d: %v", id.schema, err)}, nil // not kept: the registry may have it later
	}
	if len(d.programs) >= maxPrograms {
		clear(d.programs)
	}
	d.programs[id] = p
	return p, nil
}

// appendWritten is Append for records that have a schema.
func (d *Decoder) appendWritten(b *Builder, batch *sources.Batch, from, limit int) (int, error) {
	d.aimCells(b)
	if d.last != nil && d.last.err != "" {
		d.last = nil // the registry was asked since, and may have it now
	}
	row, n := b.Rows(), from
	for ; n < len(batch.Recs) && row < limit; n++ {
		rec := &batch.Recs[n]
		if rec.Tombstone { // no record was written
			continue
		}
		d.take(batch.Arena, int(rec.Value[0]), int(rec.Value[1]))
		b.Offsets[row], b.Times[row] = rec.Offset, rec.Time
		f, err := d.writtenRow(b, row, batch, rec)
		if f != nil {
			err = d.errorOf(f, n, rec.Offset)
		}
		if err == nil && len(d.grows) > 0 && d.tooLarge(b, row) {
			b.SetRows(row)
			d.truncate(b, row)
			return n - from, ErrFull
		}
		if err != nil {
			d.truncate(b, row)
			return n - from, err
		}
		row++
	}
	b.SetRows(row)
	return n - from, nil
}

// writtenRow fills row from a record that has a schema.
func (d *Decoder) writtenRow(b *Builder, row int, batch *sources.Batch, rec *sources.Record) (*fault, error) {
	d.beginCells(row)
	d.broken = false
	prog, at, f, err := d.programOf()
	if err != nil {
		return nil, err
	}
	if f == nil {
		if prog.proto != nil {
			f = d.walkProto(prog.proto, at)
		} else {
			f = d.walkAvro(prog.avro, at)
		}
		if f != nil && d.fixed == nil {
			f.reason += fmt.Sprintf(" (schema %d)", prog.schema)
		}
	}
	if f != nil {
		if !d.lenient {
			return f, nil
		}
		d.truncate(b, row)
		d.broken = true
		d.badRecords++
		d.defaultCells()
	}
	if len(d.metas) > 0 {
		clear(d.slots)
		d.scratch = d.scratch[:0]
		for _, i := range d.metas {
			d.meta(i, batch, rec)
		}
		return d.convert(b, row), nil
	}
	return nil, nil
}
