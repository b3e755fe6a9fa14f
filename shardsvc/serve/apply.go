package serve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/internal/dataset"
	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/sources"
	"google.golang.org/grpc/codes"
)

// datasets is the Datasets service.
type datasets struct {
	headracev1.UnimplementedDatasetsServer
	s *Server
}

// Apply creates or changes a dataset. Applying the same spec again changes nothing.
// Lease sizes and the like may change at any time. A change that would make records or
// positions mean something else is refused as soon as a record is settled or leased.
func (d *datasets) Apply(ctx context.Context, req *headracev1.ApplyRequest) (*headracev1.ApplyReply, error) {
	spec, err := dataset.Parse([]byte(req.Yaml), "")
	if err != nil {
		return nil, specStatus("", err)
	}
	next, err := newStored(req.Yaml, spec)
	if err != nil {
		return nil, callStatus(err)
	}
	if d.s.cfg.Check != nil {
		if err := d.check(ctx, spec); err != nil {
			return nil, err
		}
	}
	text, err := next.encode()
	if err != nil {
		return nil, callStatus(err)
	}

	if !req.DryRun {
		if err := d.releaseBefore(ctx, spec); err != nil {
			return nil, err
		}
	}
	reply := &headracev1.ApplyReply{}
	var replaced *dataset.Spec
	err = d.s.change(ctx, func(l *loop) error {
		if err := l.aside(spec); err != nil {
			return err
		}
		ev := &shardsvc.ApplyDataset{Name: spec.Name, Spec: text, Options: options(spec)}
		was, exists := l.dataset(spec.Name)
		if !exists {
			if left := l.leftoverOf(spec); left != nil && !req.DryRun { // it was deleted just now
				return stillThere(spec, errors.New("it is being removed"))
			}
			ev.ID = l.core.NextDataset()
			reply.Outcome = headracev1.ApplyReply_CREATED
			reply.Dataset = createdProto(ev.ID, next)
		} else {
			ev.ID = was.ID
			old, err := decodeStored(was.Spec)
			if err != nil {
				return err
			}
			changes := dataset.Diff(old.spec, spec)
			reply.Diff, reply.Dataset = diffText(changes), datasetProto(was, next)
			if len(changes) == 0 {
				reply.Dataset = datasetProto(was, old)
				return nil
			}
			reply.Outcome = headracev1.ApplyReply_CHANGED
			if err := incompatible(was, changes); err != nil {
				if !untouched(was, old.spec) {
					return err
				}
				replaced = old.spec
			}
		}
		if req.DryRun {
			return nil
		}
		if replaced != nil {
			l.forget(was.ID, false)
			ev.ID = l.core.NextDataset()
		}
		l.step(ev)
		if err := l.rejected(); err != nil {
			return statusOf(codes.FailedPrecondition, fmt.Errorf("dataset %q: %w", spec.Name, err), detail{Dataset: spec.Name})
		}
		if now, ok := l.core.Dataset(ev.ID); ok {
			reply.Dataset = datasetProto(now, next)
		}
		d.s.changed.fire()
		return nil
	})
	if err != nil {
		return nil, callStatus(err)
	}
	if replaced != nil && !req.DryRun && replaced.Source.Traits().AtSource != spec.Source.Traits().AtSource {
		if err := d.releaseReplaced(ctx, replaced); err != nil {
			return nil, err
		}
	}
	return reply, nil
}

// untouched reports whether no record of a dataset is settled, leased or pushed. Then
// any other spec may replace its spec.
func untouched(was shardsvc.DatasetInfo, spec *dataset.Spec) bool {
	return was.Counts.Settled+was.Backfill.Settled == 0 && was.Leases == 0 && !(spec.Kind().Pushed && was.Counts.Listed > 0)
}

// checkWithin bounds how long Config.Check may ask the source. It is shorter than a caller
// waits for its answer, so that a silent source does not look like a silent master.
const checkWithin = 10 * time.Second

// check runs Config.Check and turns its error into a status for the caller.
func (d *datasets) check(ctx context.Context, spec *dataset.Spec) error {
	look, cancel := context.WithTimeout(ctx, checkWithin)
	defer cancel()
	err := d.s.cfg.Check(look, spec)
	_, temporary := errors.AsType[*sources.Temporary](err)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return callStatus(ctx.Err()) // the caller has gone
	case temporary, errors.Is(err, context.DeadlineExceeded):
		hint := "is it up, and can the master's machine reach it? The same command works once it answers; " +
			"`headrace check -f FILE` asks it from this machine"
		return statusOf(codes.FailedPrecondition, fmt.Errorf("dataset %s was not applied: %w", spec.Name, err), detail{Dataset: spec.Name, Hint: hint})
	}
	return specStatus(spec.Name, err)
}

// aside refuses a spec that would delete what another dataset of the job reads, or the other
// way round.
func (l *loop) aside(spec *dataset.Spec) error {
	for _, d := range l.core.Datasets() {
		other, err := decodeStored(d.Spec)
		if d.Name == spec.Name || err != nil { // one of another version is not known
			continue
		}
		deletes, reads := spec, other.spec
		field, overlap := deletes.DeletesOf(reads)
		if !overlap {
			deletes, reads = reads, deletes
			if field, overlap = deletes.DeletesOf(reads); !overlap {
				continue
			}
		}
		return statusOf(codes.FailedPrecondition,
			fmt.Errorf("dataset %q would delete what dataset %q reads: their inputs overlap, and %q has %s", deletes.Name, reads.Name, deletes.Name, field),
			detail{Dataset: spec.Name, Hint: "give each of them an input of its own, or remove " + field})
	}
	return nil
}

func diffText(changes []dataset.Change) string {
	lines := make([]string, len(changes))
	for i, c := range changes {
		lines[i] = c.String()
	}
	return strings.Join(lines, "\n")
}

// incompatible returns an error if the changes would give records or positions another
// meaning. It names every such field.
func incompatible(was shardsvc.DatasetInfo, changes []dataset.Change) error {
	name := was.Name
	var fields []string
	for _, c := range changes {
		if !c.Compatible {
			fields = append(fields, c.String())
		}
	}
	if len(fields) == 0 {
		return nil
	}
	field, _, _ := strings.Cut(fields[0], ":")
	hint := fmt.Sprintf("`headrace run -f FILE --fresh` forgets its progress and begins with the new spec, and so does `headrace delete %s` while a master runs; or give the new one another name", name)
	if was.Counts.Settled+was.Backfill.Settled == 0 && was.Leases > 0 {
		hint = "trainers are reading it: stop them, and apply the new spec then; nothing of it is settled yet"
	}
	return statusOf(codes.FailedPrecondition,
		fmt.Errorf("dataset %q exists, and this would make its records mean something else: %s", name, strings.Join(fields, "; ")),
		detail{Dataset: name, Field: field, Hint: hint})
}

// dataset finds one by name.
func (l *loop) dataset(name string) (shardsvc.DatasetInfo, bool) {
	for _, d := range l.core.Datasets() {
		if d.Name == name {
			return d, true
		}
	}
	return shardsvc.DatasetInfo{}, false
}

// mustDataset is dataset with a NOT_FOUND error that lists the datasets there are.
func (l *loop) mustDataset(name string) (shardsvc.DatasetInfo, error) {
	d, ok := l.dataset(name)
	if ok {
		return d, nil
	}
	var names []string
	for _, d := range l.core.Datasets() {
		names = append(names, d.Name)
	}
	hint := "no dataset was applied yet: headrace dataset apply -f FILE"
	if len(names) > 0 {
		hint = "there is: " + strings.Join(names, ", ")
		if near := dataset.Nearest(name, names); near != "" {
			hint = fmt.Sprintf("did you mean %q? %s", near, hint)
		}
	}
	return d, statusOf(codes.NotFound, fmt.Errorf("no dataset %q; %s", name, hint), detail{Dataset: name, Hint: hint})
}
