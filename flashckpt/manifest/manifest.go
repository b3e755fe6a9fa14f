package manifest

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/headrace/headrace/shardsvc/cut"
)

const (
	// FileName of a manifest in a checkpoint's folder. A checkpoint that is one file
	// has it as FILE + "." + FileName beside it.
	FileName = "headrace-manifest.json"

	// Format and Version begin every manifest. Version grows when an older reader would
	// misunderstand a newer manifest. It does not grow for new optional fields.
	Format     = "headrace-checkpoint"
	PartFormat = "headrace-checkpoint-part"
	Version    = 1

	// MaxBytes of one manifest, part or cut.
	MaxBytes = cut.MaxBytes
	// MaxFiles of one checkpoint.
	MaxFiles = 1 << 20
)

// Manifest is one checkpoint.
type Manifest struct {
	Format    string    `json:"format"`
	Version   int       `json:"version"`
	Job       string    `json:"job"`
	Model     string    `json:"model"`
	Step      int64     `json:"step"`
	Rank      *uint32   `json:"rank,omitempty"` // private only
	WorldSize uint32    `json:"world_size"`
	Created   time.Time `json:"created"`
	Writer    string    `json:"writer,omitempty"`
	// Needs are checkpoints without which this one cannot be loaded.
	Needs []cut.ID `json:"needs,omitempty"`
	Files []File   `json:"files"`
	// State is the writer's own description of what is in the files.
	State json.RawMessage `json:"state,omitempty"`
	Cut   cut.Cut         `json:"cut"`
}

// File is one file of a checkpoint.
type File struct {
	Path string  `json:"path"` // below the manifest's folder, with slashes
	Size int64   `json:"size"`
	CRC  CRC64   `json:"crc64nvme"`
	Rank *uint32 `json:"rank,omitempty"` // the rank that wrote it, in a sharded save
}

// Part is one rank's share of a sharded save.
type Part struct {
	Format    string          `json:"format"`
	Version   int             `json:"version"`
	Cut       cut.ID          `json:"cut"`
	Step      int64           `json:"step"`
	Rank      uint32          `json:"rank"`
	WorldSize uint32          `json:"world_size"`
	Files     []File          `json:"files"`
	State     json.RawMessage `json:"state,omitempty"`
}

// CRC64 is CRC-64/NVME of a run of bytes.
type CRC64 uint64

func (c CRC64) String() string               { return fmt.Sprintf("%016x", uint64(c)) }
func (c CRC64) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads 16 hex digits.
func (c *CRC64) UnmarshalText(b []byte) error {
	v, err := strconv.ParseUint(string(b), 16, 64)
	if err != nil || len(b) != 16 {
		return fmt.Errorf("%.40q: not 16 hex digits", b)
	}
	*c = CRC64(v)
	return nil
}
