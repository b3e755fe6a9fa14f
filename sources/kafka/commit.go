package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/headrace/headrace/sources"
	"github.com/headrace/headrace/sources/brokers"
)

const commitWithin = 20 * time.Second

// Commit writes the group's offset of each partition: the next offset to read. The source is
// not a member of the group, and no other consumer may be. An offset below the group's
// present one is written only if the mark says that progress went back.
func (s *Source) Commit(ctx context.Context, marks []sources.Mark) error {
	if s.o.Group == "" {
		return errors.New("kafka: commit without kafka.group in the spec")
	}
	if err := s.Usable(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commitWithin)
	defer cancel()
	parts := make([]partition, len(marks))
	for i, m := range marks {
		var err error
		if parts[i], err = s.find(ctx, m.Partition); err != nil {
			return err
		}
	}
	for {
		err := s.commitOnce(ctx, parts, marks)
		var again *sources.Temporary
		if !errors.As(err, &again) {
			return err
		}
		if brokers.Pause(ctx, again.Backoff) != nil {
			return err
		}
	}
}

func (s *Source) commitOnce(ctx context.Context, parts []partition, marks []sources.Mark) error {
	had, err := s.committed(ctx, parts)
	if err != nil {
		return err
	}
	topics := map[string][]kafkago.OffsetCommit{}
	for i, p := range parts {
		if old, ok := had[p.id()]; ok && old > marks[i].Position.Offset && !marks[i].Back {
			continue
		}
		topics[p.name] = append(topics[p.name], kafkago.OffsetCommit{Partition: int(p.number), Offset: marks[i].Position.Offset})
	}
	if len(topics) == 0 {
		return nil
	}
	// Generation -1: a commit by a client that is not a member of the group.
	res, err := s.client.kafka.OffsetCommit(ctx, &kafkago.OffsetCommitRequest{GroupID: s.o.Group, GenerationID: -1, Topics: topics})
	if err != nil {
		return s.client.explain(ctx, err)
	}
	for topic, all := range res.Topics {
		for _, p := range all {
			if p.Error != nil {
				return s.commitError(fmt.Sprintf("%s/%d", topic, p.Partition), p.Error)
			}
		}
	}
	return nil
}

// committed returns the group's offsets. A partition without one is not in the map.
func (s *Source) committed(ctx context.Context, parts []partition) (map[sources.PartitionID]int64, error) {
	ask := map[string][]int{}
	for _, p := range parts {
		ask[p.name] = append(ask[p.name], int(p.number))
	}
	res, err := s.client.kafka.OffsetFetch(ctx, &kafkago.OffsetFetchRequest{GroupID: s.o.Group, Topics: ask})
	if err != nil {
		return nil, s.client.explain(ctx, err)
	}
	if res.Error != nil {
		return nil, s.commitError("all", res.Error)
	}
	had := map[sources.PartitionID]int64{}
	for _, p := range parts {
		for _, o := range res.Topics[p.name] {
			if o.Partition != int(p.number) {
				continue
			}
			if o.Error != nil {
				return nil, s.commitError(p.String(), o.Error)
			}
			if o.CommittedOffset >= 0 {
				had[p.id()] = o.CommittedOffset
			}
		}
	}
	return had, nil
}

func (s *Source) commitError(where string, err error) error {
	var code kafkago.Error
	err = fmt.Errorf("committing %s for group %s: %w", where, s.o.Group, err)
	if !errors.As(err, &code) {
		return err
	}
	switch {
	case code == kafkago.NotCoordinatorForGroup, code == kafkago.GroupLoadInProgress, code == kafkago.GroupCoordinatorNotAvailable, code.Temporary():
		return temporary(err)
	case code == kafkago.UnknownMemberId, code == kafkago.RebalanceInProgress, code == kafkago.IllegalGeneration:
		return fmt.Errorf("%w: somebody consumes with this group; give the dataset a group of its own", err)
	}
	return err
}
