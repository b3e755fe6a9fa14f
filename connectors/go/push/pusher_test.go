package push

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
)

// shy answers the first calls with "later".
type shy struct {
	grpc.ClientConnInterface
	later int
}

func (s *shy) Invoke(context.Context, string, any, any, ...grpc.CallOption) error {
	if s.later--; s.later >= 0 {
		return status.Error(codes.Unavailable, "a chunk could not be stored: no space left on device")
	}
	return nil
}

func TestACallerIsToldWhyAPusherWaits(t *testing.T) {
	var told []string
	if _, err := Open(t.Context(), &shy{later: 2}, "clicks", OnWait(func(reason error) { told = append(told, status.Convert(reason).Message()) })); err != nil {
		t.Fatal(err)
	}
	if len(told) != 2 || told[0] != "a chunk could not be stored: no space left on device" {
		t.Errorf("%q", told)
	}
	if _, err := Open(t.Context(), &shy{later: 1}, "clicks"); err != nil {
		t.Error(err)
	}
}

// roomy answers the layout of a dataset whose records may have 16 MiB.
type roomy struct{ grpc.ClientConnInterface }

func (roomy) Invoke(_ context.Context, _ string, _, reply any, _ ...grpc.CallOption) error {
	if l, ok := reply.(*headracev1.LayoutReply); ok {
		l.Partitions, l.ChunkBytes, l.MaxRecord = 1, 1<<20, 16<<20
	}
	return nil
}

func TestARecordOfAHundredMegabytesIsRefusedWithWhatToDo(t *testing.T) {
	p, err := Open(t.Context(), roomy{}, "clicks")
	if err != nil {
		t.Fatal(err)
	}
	tx := p.Begin("big")
	err = tx.Push(t.Context(), Record{Value: make([]byte, 100<<20)})
	if err == nil || !strings.Contains(err.Error(), "record 0 of transaction \"big\" has 104857600 bytes") || !strings.Contains(err.Error(), "max_record of dataset clicks is 16777216: raise it") {
		t.Error(err)
	}
	if err := tx.Push(t.Context(), Record{Value: []byte("small")}); err != nil || tx.Records() != 1 {
		t.Errorf("a smaller record after it: %v, %d records", err, tx.Records())
	}
}
