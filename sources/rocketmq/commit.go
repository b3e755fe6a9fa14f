package rocketmq

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
)

const commitWithin = 20 * time.Second

// Commit writes the group's offset of each queue: the next offset to read. It waits for the
// answer of each commit and reads it back. An offset below the group's present one is
// written only if the mark says that progress went back. If a broker is away, or an offset is
// refused, the other commits are made all the same. Then the error is a *sources.Untold.
func (s *Source) Commit(ctx context.Context, marks []sources.Mark) error {
	if s.o.Group == "" {
		return errors.New("rocketmq: commit without rocketmq.group in the spec")
	}
	if err := s.Usable(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, commitWithin)
	defer cancel()
	ids, errs := make([]sources.PartitionID, len(marks)), make([]error, len(marks))
	away := map[string]error{} // brokers that did not answer; they are not asked again
	for i, m := range marks {
		ids[i] = m.Partition
		p, err := s.find(ctx, m.Partition)
		b := p.cluster + "/" + p.broker
		if err == nil {
			err = away[b]
		}
		if err == nil {
			if err = s.commit(ctx, p, m); err != nil {
				if again, is := errors.AsType[*sources.Temporary](err); is && again.Away {
					away[b] = err
				}
			}
		}
		errs[i] = err
	}
	return sources.UntoldOf(ids, errs)
}

func (s *Source) commit(ctx context.Context, p partition, m sources.Mark) error {
	what := fmt.Sprintf("committing %s for group %s", p, s.o.Group)
	addr, err := s.master(ctx, p)
	if err != nil {
		return err
	}
	had, any, err := s.committed(ctx, addr, p)
	if err != nil {
		return s.explain(ctx, err, what)
	}
	if any && (had == m.Position.Offset || had > m.Position.Offset && !m.Back) {
		return nil
	}
	if err := s.shown(ctx, addr); err != nil {
		return s.explain(ctx, err, what)
	}
	_, err = s.client.Call(ctx, addr, remoting.UpdateOffset(p.remote(), s.o.Group, m.Position.Offset))
	if remoting.CodeOf(err) == remoting.GroupUnknown {
		// A pull creates the group, if the broker may create groups.
		_, _ = s.client.Call(ctx, addr, remoting.Pull{Queue: p.remote(), Group: s.o.Group, Offset: m.Position.Offset, Most: 1}.Command())
		_, err = s.client.Call(ctx, addr, remoting.UpdateOffset(p.remote(), s.o.Group, m.Position.Offset))
	}
	if err != nil {
		return s.explain(ctx, err, what)
	}
	switch is, any, err := s.committed(ctx, addr, p); {
	case err != nil:
		return s.explain(ctx, err, what)
	case !any || is != m.Position.Offset:
		return temporary(fmt.Errorf("%s: the broker took offset %d and has %d: somebody else commits for this group; give the dataset a group of its own", what, m.Position.Offset, is))
	}
	return nil
}

// committed returns the group's offset of a queue, if it has any.
func (s *Source) committed(ctx context.Context, addr string, p partition) (offset int64, any bool, err error) {
	a, err := s.client.Call(ctx, addr, remoting.QueryOffset(p.remote(), s.o.Group))
	if code := remoting.CodeOf(err); code == remoting.NoOffset || code == remoting.GroupUnknown {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	offset, err = remoting.OffsetOf(a)
	return offset, err == nil, err
}

// shown creates the group's retry topic on a broker, as every consumer of the group does.
// Without that topic `mqadmin consumerProgress -g GROUP` fails. On a broker that does not
// allow it, our progress is shown only with -t TOPIC.
func (s *Source) shown(ctx context.Context, addr string) error {
	s.mu.Lock()
	did := s.groups[addr]
	s.groups[addr] = true
	s.mu.Unlock()
	if did {
		return nil
	}
	topic := "%RETRY%" + s.o.Group
	err := s.client.CreateTopic(ctx, addr, topic, 1)
	if code := remoting.CodeOf(err); code >= 0 {
		s.o.Logger.Info("the broker does not make the group's retry topic: see our progress with mqadmin consumerProgress -g and -t", "group", s.o.Group, "broker", addr, "why", err)
		return nil
	}
	if err != nil {
		s.mu.Lock()
		delete(s.groups, addr)
		s.mu.Unlock()
	}
	return err
}
