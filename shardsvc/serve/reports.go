package serve

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/headrace/headrace/shardsvc"
	"github.com/headrace/headrace/shardsvc/cut"
)

// said is the level and the text of a report in the log.
type said struct {
	level slog.Level
	text  string
}

var sayings = map[shardsvc.ReportKind]said{
	shardsvc.ReportReclaimed:       {slog.LevelInfo, "rows are pending again"},
	shardsvc.ReportStealAsked:      {slog.LevelDebug, "a slow worker is asked for the tail of its lease"},
	shardsvc.ReportStolen:          {slog.LevelDebug, "tail taken from a slower worker"},
	shardsvc.ReportStealRefused:    {slog.LevelDebug, "the worker keeps the tail of its lease"},
	shardsvc.ReportAckRefused:      {slog.LevelWarn, "an ack was refused: it changes nothing"},
	shardsvc.ReportDatasetDone:     {slog.LevelInfo, "every record of the dataset is settled"},
	shardsvc.ReportPassDone:        {slog.LevelDebug, "a pass of a partition is settled"},
	shardsvc.ReportDatasetFailed:   {slog.LevelError, "dataset stopped"},
	shardsvc.ReportDiverged:        {slog.LevelError, "the source took back records that were planned"},
	shardsvc.ReportNeedSegments:    {slog.LevelDebug, "few listed segments are left: more are asked for"},
	shardsvc.ReportGeneration:      {slog.LevelInfo, "a group of trainers began"},
	shardsvc.ReportGenerationEnded: {slog.LevelWarn, "a group of trainers ended"},
	shardsvc.ReportPendingAgain:    {slog.LevelWarn, "records that a rank had acked are pending again"},
	shardsvc.ReportStalled:         {slog.LevelWarn, "a trainer makes no progress, and is ended"},
	shardsvc.ReportExpired:         {slog.LevelWarn, "agent's session expired"},
	shardsvc.ReportGivenUp:         {slog.LevelWarn, "a trainer is given up: its rows go to others; batches that it stepped and did not report come again"},
	shardsvc.ReportRecovered:       {slog.LevelInfo, "the master has recovered: it grants rows again"},
	shardsvc.ReportHeldRefused:     {slog.LevelWarn, "an agent asserted a lease whose records belong to others now"},
	shardsvc.ReportRejected:        {slog.LevelWarn, "a request was refused"},
	shardsvc.ReportFenced:          {slog.LevelWarn, "a trainer is fenced: it is no longer in the group"},
	shardsvc.ReportCutFrozen:       {slog.LevelDebug, "cut frozen"},
	shardsvc.ReportCutBound:        {slog.LevelInfo, "checkpoint bound"},
	shardsvc.ReportCutMemory:       {slog.LevelInfo, "checkpoint in memory"},
	shardsvc.ReportCutVoided:       {slog.LevelWarn, "checkpoint voided: nobody goes back to it"},
	shardsvc.ReportCutDropped:      {slog.LevelDebug, "cut forgotten"},
	shardsvc.ReportResolveCut:      {slog.LevelInfo, "a process is gone: looking for its checkpoint"},
	shardsvc.ReportRestored:        {slog.LevelWarn, "training goes on from a checkpoint"},
	shardsvc.ReportRewound:         {slog.LevelWarn, "the job was rewound"},
	shardsvc.ReportRestoreMissing:  {slog.LevelError, "not all ranks restored in time"},
	shardsvc.ReportRestoreWaits:    {slog.LevelWarn, "a restore waits: it is not known yet whether other trainers still train the model"},
	shardsvc.ReportPauseEnded:      {slog.LevelDebug, "trainers were paused for an exact save, and go on"},
	shardsvc.ReportRoundsDropped:   {slog.LevelInfo, "rows beyond the last full round are dropped: they are in no model"},
	shardsvc.ReportPushedLost:      {slog.LevelWarn, "pushed records that the checkpoint does not have are lost with the master's landing: push them again"},
	shardsvc.ReportExcluded:        {slog.LevelWarn, "the source has lost records; they are excluded"},
	shardsvc.ReportReadmitted:      {slog.LevelInfo, "records that were excluded are in the model that training goes on with: they are not excluded any more"},
}

// report logs and counts the core's reports of a batch, after the batch is durable.
func (s *Server) report(reports []shardsvc.Report) {
	for i := range reports {
		r := &reports[i]
		switch r.Kind {
		case shardsvc.ReportReclaimed:
			s.metrics.reclaims.WithLabelValues(r.Reclaimed.String()).Inc()
			if r.Reclaimed == shardsvc.ReclaimedSourceAway && s.cfg.Away != nil {
				s.cfg.Away(r.Dataset)
			}
		case shardsvc.ReportAckRefused:
			s.metrics.refused.WithLabelValues(r.Code.String()).Inc()
		case shardsvc.ReportCutFrozen:
			s.metrics.cuts.WithLabelValues("frozen").Inc()
			s.bindings.seen(r.Cut, time.Now()) // of one in memory this is its age
		case shardsvc.ReportCutBound:
			s.metrics.cuts.WithLabelValues("bound").Inc()
			s.bindings.seen(r.Cut, time.Now())
			s.moved.fire()
		case shardsvc.ReportCutVoided:
			s.metrics.cuts.WithLabelValues("voided").Inc()
			s.bindings.forget(r.Cut)
			s.bodies.forget(r.Cut)
		case shardsvc.ReportCutDropped:
			s.metrics.cuts.WithLabelValues("dropped").Inc()
			s.bindings.forget(r.Cut)
			s.bodies.forget(r.Cut)
		case shardsvc.ReportResolveCut:
			s.resolve(r.Cut, r.Path)
		case shardsvc.ReportRestored, shardsvc.ReportRewound:
			if r.Kind == shardsvc.ReportRestored {
				s.tellGone(r.Cut)
			}
			s.moved.fire()
			s.changed.fire()
		}
		if r.Bad {
			s.letters.fire()
		}
		how, ok := sayings[r.Kind]
		if !ok {
			how = said{slog.LevelInfo, fmt.Sprintf("report %d", r.Kind)}
		}
		if r.Kind == shardsvc.ReportReclaimed && r.Units == 0 { // it waited at the end of a live input
			how = said{slog.LevelDebug, "a lease came back, and no rows with it"}
		}
		if r.Bad {
			how = said{slog.LevelWarn, "a record is bad; it is excluded"}
		}
		if r.Old {
			how = said{slog.LevelInfo, "records are older than the dataset wants (catch_up); they are excluded"}
		}
		if r.Kind == shardsvc.ReportPauseEnded && r.Reason != "" {
			how = said{slog.LevelWarn, "an exact save has failed: its trainers were paused, and go on"}
		}
		if over, ok := ofNewRun(r); ok {
			how = over
		}
		if s.cfg.Logger.Enabled(context.Background(), how.level) {
			s.cfg.Logger.LogAttrs(context.Background(), how.level, how.text, attrs(r)...)
		}
	}
}

// ofNewRun returns what the log says of the end of a generation and of a restore. If a new
// group has come after one that had ended, nothing went wrong, and the level is Info.
func ofNewRun(r *shardsvc.Report) (how said, ok bool) {
	switch {
	case r.Kind == shardsvc.ReportGenerationEnded && r.Over:
		return said{slog.LevelInfo, "a new group of trainers comes after one that has ended"}, true
	case r.Kind == shardsvc.ReportRestored && r.Cut == 0:
		how = said{slog.LevelWarn, "training begins from the start, and goes back to no checkpoint"}
	case r.Kind == shardsvc.ReportRestored:
		how = sayings[r.Kind]
	default:
		return how, false
	}
	if r.Over || r.Units == 0 {
		how.level = slog.LevelInfo
	}
	return how, true
}

// named returns the name, or the number if there is no name any more.
func named(name string, number uint32) string {
	if name != "" {
		return name
	}
	return strconv.FormatUint(uint64(number), 10)
}

func leaseText(k shardsvc.Token) string {
	return fmt.Sprintf("%d.%d.%d", k.Epoch, k.Term, k.Sequence)
}

func attrs(r *shardsvc.Report) []slog.Attr {
	var a []slog.Attr
	if r.Dataset != 0 {
		a = append(a, slog.String("dataset", named(r.Name, r.Dataset)))
	}
	if r.Partition != 0 {
		a = append(a, slog.String("partition", named(r.Label, r.Partition)), slog.Uint64("pass", uint64(r.Pass)), slog.Int64("segment", r.Segment))
	}
	if r.Start != 0 || r.End != 0 {
		a = append(a, slog.Int64("start", r.Start), slog.Int64("end", r.End))
	}
	if r.Token != (shardsvc.Token{}) {
		a = append(a, slog.String("lease", leaseText(r.Token)))
	}
	if r.Agent != "" {
		a = append(a, slog.String("agent", r.Agent))
	}
	switch r.Kind {
	case shardsvc.ReportReclaimed, shardsvc.ReportStolen, shardsvc.ReportStalled, shardsvc.ReportPendingAgain, shardsvc.ReportGivenUp, shardsvc.ReportFenced, shardsvc.ReportPauseEnded:
		a = append(a, slog.Uint64("rank", uint64(r.Rank)))
	}
	if r.Cut != 0 {
		a = append(a, slog.String("cut", cut.ID(r.Cut).String()), slog.Int64("step", r.Step))
	}
	if r.Path != "" {
		a = append(a, slog.String("path", r.Path))
	}
	if r.Units != 0 {
		a = append(a, slog.Int64("units", r.Units))
	}
	if r.Records.Rows != 0 {
		a = append(a, slog.Int64("records", r.Records.Rows))
	}
	if why := r.Why(); why != "" {
		a = append(a, slog.String("reason", why))
	}
	return a
}
