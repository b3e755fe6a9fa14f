package memory

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/minio/crc64nvme"

	"github.com/headrace/headrace/flashckpt/manifest"
)

// Head is what a control page says of its slot.
type Head struct {
	Number   uint64 // grows with each write of a rank
	Image    uint64 // bytes
	ImageCRC uint64
	Text     uint64 // bytes
	TextCRC  uint64
}

const (
	endAt      = 16        // of the end mark in the control page
	mostImage  = 1 << 45   // bytes
	mostHeader = 100 << 20 // bytes of a safetensors header, as its readers have it
)

// check returns an error if no slot can have these values.
func (h *Head) check() error {
	switch {
	case h.Number == 0:
		return errors.New("its number is 0")
	case h.Image < 8 || h.Image > mostImage:
		return fmt.Errorf("an image of %d bytes", h.Image)
	case h.Text < 2 || h.Text > manifest.MaxBytes:
		return fmt.Errorf("a text of %d bytes", h.Text)
	}
	return nil
}

// textAt is where the text begins in the file.
func (h *Head) textAt() int64 { return page + int64(h.Image+page-1)/page*page }

// size is that of the file.
func (h *Head) size() int64 { return h.textAt() + int64(h.Text) }

// control is the control page, as far as it is used.
func (h *Head) control() []byte {
	b := []byte(magic)
	for _, v := range []uint64{h.Number, h.Number, h.Image, h.ImageCRC, h.Text, h.TextCRC} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return binary.LittleEndian.AppendUint64(b, crc64nvme.Checksum(b))
}

// parseControl reads the first bytes of a control page. Errors: ErrIncomplete.
func parseControl(b []byte) (Head, error) {
	if len(b) < controlSize+8 {
		return Head{}, ErrIncomplete
	}
	c, le := b[:controlSize], binary.LittleEndian
	begin, end := le.Uint64(c[8:]), le.Uint64(c[endAt:])
	if string(c[:8]) != magic || begin != end || end == 0 || crc64nvme.Checksum(c) != le.Uint64(b[controlSize:]) {
		return Head{}, ErrIncomplete
	}
	return Head{end, le.Uint64(c[24:]), le.Uint64(c[32:]), le.Uint64(c[40:]), le.Uint64(c[48:])}, nil
}

// readControl reads the control page of a file. Errors wrap ErrIncomplete, or are those of reading.
func readControl(f io.ReaderAt) (Head, error) {
	b := make([]byte, controlSize+8)
	if n, err := f.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return Head{}, err
	} else {
		return parseControl(b[:n])
	}
}

// checkImage says what is wrong with a safetensors image: its arrays lie one after another
// from the header's end to the image's, without holes.
func checkImage(b []byte) error {
	n := binary.LittleEndian.Uint64(b)
	if n < 2 || n > uint64(len(b)-8) || n > mostHeader {
		return fmt.Errorf("its header has %d bytes, in an image of %d", n, len(b))
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(b[8:8+n], &entries); err != nil {
		return fmt.Errorf("its header: %w", err)
	}
	data := uint64(len(b)) - 8 - n
	spans := make(map[uint64]uint64, len(entries))
	for name, raw := range entries {
		if name == "__metadata__" {
			continue
		}
		var e struct {
			Offsets []uint64 `json:"data_offsets"`
		}
		if err := json.Unmarshal(raw, &e); err != nil || len(e.Offsets) != 2 {
			return fmt.Errorf("its array %q cannot be read", name)
		}
		from, to := e.Offsets[0], e.Offsets[1]
		if from > to || to > data {
			return fmt.Errorf("its array %q lies at [%d, %d) of %d bytes", name, from, to, data)
		}
		if from == to {
			continue
		}
		if _, twice := spans[from]; twice {
			return fmt.Errorf("two arrays begin at %d", from)
		}
		spans[from] = to
	}
	at := uint64(0)
	for at < data {
		to, ok := spans[at]
		if !ok {
			return fmt.Errorf("no array begins at %d of %d bytes", at, data)
		}
		delete(spans, at)
		at = to
	}
	if len(spans) > 0 {
		return fmt.Errorf("%d arrays lie over others", len(spans))
	}
	return nil
}
