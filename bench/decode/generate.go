package main

import (
	"bufio"
	"io"
	"math/rand/v2"
	"strconv"
)

// generate writes records with skewed numbers and categories: each column has up to 10^6 categories, and
// a few of them make up most of the records.
func generate(w io.Writer, format string, records int, seed uint64) error {
	r := rand.New(rand.NewPCG(seed, 0))
	out := bufio.NewWriterSize(w, 1<<20)
	zipf := rand.NewZipf(r, 1.1, 8, 1<<20-1)
	var line []byte
	for range records {
		if format == "tsv" {
			line = tsvRecord(line[:0], r, zipf)
		} else {
			line = jsonRecord(line[:0], r, zipf)
		}
		if _, err := out.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return out.Flush()
}

// number is missing one time in ten.
func number(r *rand.Rand) (v int64, present bool) {
	return int64(r.ExpFloat64() * 60), r.IntN(10) > 0
}

func category(dst []byte, column int, z *rand.Zipf) []byte {
	const hex = "0123456789abcdef"
	v := uint32(z.Uint64())*2654435761 + uint32(column)*0x9E3779B1
	v ^= v >> 15
	for shift := 28; shift >= 0; shift -= 4 {
		dst = append(dst, hex[v>>shift&15])
	}
	return dst
}

func tsvRecord(b []byte, r *rand.Rand, z *rand.Zipf) []byte {
	b = strconv.AppendInt(b, int64(r.IntN(4)/3), 10)
	for range 13 {
		b = append(b, '\t')
		if v, present := number(r); present {
			b = strconv.AppendInt(b, v, 10)
		}
	}
	for c := range 26 {
		b = category(append(b, '\t'), c, z)
	}
	return b
}

func jsonRecord(b []byte, r *rand.Rand, z *rand.Zipf) []byte {
	b = strconv.AppendInt(append(b, `{"label":`...), int64(r.IntN(4)/3), 10)
	for i := range 13 {
		b = strconv.AppendInt(append(b, `,"I`...), int64(i+1), 10)
		b = append(b, `":`...)
		if v, present := number(r); present {
			b = strconv.AppendInt(b, v, 10)
		} else {
			b = append(b, "null"...)
		}
	}
	for c := range 26 {
		b = strconv.AppendInt(append(b, `,"C`...), int64(c+1), 10)
		b = append(category(append(b, `":"`...), c, z), '"')
	}
	return append(b, '}')
}
