package decode

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/headrace/headrace/internal/schema"
	"github.com/headrace/headrace/sources"
)

// Schemas gives the schemas of writers. It does no I/O: whoever reads records has asked for
// the schemas of a batch before it is decoded.
type Schemas interface {
	// Schema returns the schema that a registry has under an id; with Given, the one that
	// the spec gives. An error says why records with it cannot be read. A
	// *sources.Temporary error says nothing of the record: the schema must be asked for.
	Schema(id uint32) (*schema.Schema, error)
}

// Given is the id of the schema that the spec itself gives.
const Given = 0

// WithSchemas says where the schemas of format avro are.
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

// program is how records of one schema are walked, or why they cannot be.
type program struct {
	id   uint32
	avro *avroProgram
	err  string
}

// maxPrograms bounds what one decoder keeps. More ids than that are compiled again.
const maxPrograms = 1 << 10

// planWriters prepares for records that have a schema.
func (d *Decoder) planWriters() error {
	d.wants = d.planWants()
	d.programs = map[uint32]*program{}
	ds := &d.spec.Decode
	switch {
	case ds.Schema != nil && d.o.schemas != nil:
		s, err := d.o.schemas.Schema(Given)
		if err != nil {
			return err
		}
		d.fixed, err = d.compileSchema(Given, s)
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
		d.fixed, err = d.compileSchema(Given, s)
		return err
	}
	return nil
}

func (d *Decoder) compileSchema(id uint32, s *schema.Schema) (*program, error) {
	p := &program{id: id}
	var err error
	p.avro, err = d.compileAvro(s.Avro)
	return p, err
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
	id := binary.BigEndian.Uint32(d.buf[d.start+1:])
	if d.last == nil || d.last.id != id {
		if d.last = d.programs[id]; d.last == nil {
			if d.last, err = d.newProgram(id); err != nil {
				return nil, 0, nil, err
			}
		}
	}
	if d.last.err != "" {
		return nil, 0, &fault{at: 1, value: d.buf[d.start : d.start+wireHead], reason: d.last.err}, nil
	}
	return d.last, d.start + wireHead, nil, nil
}

// wireHead is the length of a registry's header: a byte 0 and the id, big-endian.
const wireHead = 5

func (d *Decoder) newProgram(id uint32) (*program, error) {
	if d.o.schemas == nil {
		return nil, errors.New("decode: no registry was given")
	}
	var p *program
	s, err := d.o.schemas.Schema(id)
	if err == nil {
		p, err = d.compileSchema(id, s)
	}
	if _, temporary := errors.AsType[*sources.Temporary](err); temporary {
		return nil, err
	}
	if err != nil {
		return &program{id: id, err: fmt.Sprintf("its schema %d: %v", id, err)}, nil // not kept: the registry may have it later
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
		if f = d.walkAvro(prog.avro, at); f != nil && d.fixed == nil {
			f.reason += fmt.Sprintf(" (schema %d)", prog.id)
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
