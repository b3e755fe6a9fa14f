package serve

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc"
	"google.golang.org/grpc/codes"
)

// DeadLetters are bad records of a dataset that are not written yet.
type DeadLetters struct {
	ID      uint32
	Dataset string
	Spec    *dataset.Spec
	Letters []shardsvc.Letter
}

// lettersAtOnce is how many letters of a dataset are handed out together.
const lettersAtOnce = 256

// NewLetters returns a channel that is closed when there are new dead letters.
func (s *Server) NewLetters() <-chan struct{} { return s.letters.wait() }

// DeadLetters returns letters that wait to be written. It returns when the exclusion of
// their records is durable.
func (s *Server) DeadLetters(ctx context.Context) ([]DeadLetters, error) {
	var all []DeadLetters
	err := s.change(ctx, func(l *loop) error {
		for _, d := range l.core.Datasets() {
			if d.Bad.Unwritten == 0 {
				continue
			}
			st, err := decodeStored(d.Spec)
			if err != nil {
				return fmt.Errorf("dataset %q: %w", d.Name, err)
			}
			all = append(all, DeadLetters{d.ID, d.Name, st.spec, l.core.Letters(d.ID, lettersAtOnce)})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// LettersWritten says that the first n letters that DeadLetters returned for a dataset are
// written and durable.
func (s *Server) LettersWritten(ctx context.Context, dataset uint32, n int) error {
	return s.change(ctx, func(l *loop) error {
		l.step(&shardsvc.LettersWritten{Dataset: dataset, Count: n})
		return l.rejected()
	})
}

// ReadDeadLetters pages through letters in files. The token is an offset in bytes.
func (d *datasets) ReadDeadLetters(ctx context.Context, req *headracev1.ReadDeadLettersRequest) (*headracev1.ReadDeadLettersReply, error) {
	size, _, err := page(req.Name, req.PageSize, "")
	if err != nil {
		return nil, err
	}
	from := int64(0)
	if req.PageToken != "" {
		if from, err = strconv.ParseInt(req.PageToken, 10, 64); err != nil || from < 0 {
			return nil, statusOf(codes.InvalidArgument, errors.New("page_token is not one that was given out"), detail{Dataset: req.Name, Field: "page_token"})
		}
	}
	var spec *dataset.Spec
	err = d.look(ctx, func(l *loop) error {
		info, err := l.mustDataset(req.Name)
		if err != nil {
			return err
		}
		st, err := decodeStored(info.Spec)
		spec = st.spec
		return err
	})
	if err != nil {
		return nil, err
	}
	if k := spec.DeadLetter; k != nil && k.Topic != "" {
		return &headracev1.ReadDeadLettersReply{Topic: k.Topic}, nil
	}
	if d.s.cfg.ReadLetters == nil {
		return nil, statusOf(codes.Unimplemented, errors.New("this master keeps no dead letters"), detail{Dataset: req.Name})
	}
	lines, next, err := d.s.cfg.ReadLetters(spec, from, size)
	if err != nil {
		return nil, statusOf(codes.Internal, fmt.Errorf("dead letters of dataset %q: %w", req.Name, err), detail{Dataset: req.Name})
	}
	reply := &headracev1.ReadDeadLettersReply{Letters: lines}
	if next > 0 && len(lines) > 0 {
		reply.NextPageToken = strconv.FormatInt(next, 10)
	}
	return reply, nil
}

func badProto(b shardsvc.BadInfo) *headracev1.BadRecords {
	if b.Records == 0 {
		return nil
	}
	p := &headracev1.BadRecords{Records: uint64(b.Records), Unwritten: uint64(b.Unwritten)}
	for _, c := range b.Columns {
		p.Columns = append(p.Columns, &headracev1.BadColumn{Column: c.Column, Records: uint64(c.Records)})
	}
	return p
}
