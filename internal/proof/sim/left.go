package sim

import (
	"fmt"
	"strings"

	"github.com/headrace/headrace/shardsvc"
)

// leftOver checks what the job leaves behind: memory and state follow what is open, so there must be
// almost nothing at the end.
func (w *World) leftOver() {
	m := w.master
	if m == nil || !m.alive {
		w.fail("there is no master long after the last trouble")
	}
	rest := false
	for i := range w.plan.datasets {
		d, _ := m.core.Dataset(shardsvc.DatasetID(i + 1))
		leased := d.Counts.Leased + d.Backfill.Leased
		if w.plan.rounds && d.State == "running" && leased == 0 {
			// The last round is known when everything is read. If an agent ends before it has acked ranges without
			// records, and the trainers leave, these ranges stay pending for the next group. books.close judges
			// whether every record is in the model.
			rest = true
			continue
		}
		if d.State != "done" || d.Counts.Pending+d.Backfill.Pending != 0 || leased != 0 {
			w.fail("all ranks were told the end of the data, and dataset %s is %s: %+v", d.Name, d.State, d.Counts)
		}
	}
	if n := len(m.core.Workers()); n > 0 {
		w.fail("all trainers have left, and the master knows %d: %+v", n, m.core.Workers())
	}
	for k := range m.disk.data {
		if k[0] == 't' && !rest || k[0] == 'a' && w.plan.model == shared {
			w.fail("stored key %q %x is not needed any more", k[0], k)
		}
	}
}

// state describes all processes, for a run that does not end.
func (w *World) state() string {
	var b strings.Builder
	if m := w.master; m != nil && m.alive {
		fmt.Fprintf(&b, "\n%+v", m.core.Job())
		for i := range w.plan.datasets {
			d, _ := m.core.Dataset(shardsvc.DatasetID(i + 1))
			fmt.Fprintf(&b, "\n%s %s %s %+v leases %d waiting %d", d.Name, d.State, d.Reason, d.Counts, d.Leases, d.Waiting)
			for _, p := range m.core.Partitions(d.ID) {
				fmt.Fprintf(&b, "\n  %+v", p)
			}
			for _, ps := range m.core.State(m.now(), d.ID, 0, 100) {
				for _, l := range ps.Lease {
					fmt.Fprintf(&b, "\n  lease %s of rank %d at %s: %s pass %d segment %d [%d, %d, %d)", token(l.Token), l.Rank, l.Agent, ps.Identity, ps.Pass, l.Segment, l.Start, l.Prefix, l.End)
				}
			}
		}
		for _, x := range m.core.Workers() {
			fmt.Fprintf(&b, "\n%+v", x)
		}
		for _, x := range m.core.Agents() {
			fmt.Fprintf(&b, "\n%+v", x)
		}
	}
	for _, n := range w.nodes {
		if n.agent != nil && n.agent.alive {
			fmt.Fprintf(&b, "\n%s stopped=%v:\n%s", n.agent.name, n.agent.stopped, n.agent.core.Dump())
			for _, s := range n.agent.seats {
				for _, f := range s.streams {
					fmt.Fprintf(&b, "  feed %v: credit %d state %v busy=%v blocked=%v asked=%v ended=%v stopped=%v leases %d\n",
						f.id, f.credit, f.state, f.busy, f.blocked, f.asked, f.ended, f.stopped, len(f.leases))
					for _, l := range f.leases {
						fmt.Fprintf(&b, "    reads lease %d [%d, %d) %s pass %d segment %d, dry=%v, may grow=%v\n", l.id, l.at, l.end, l.grant.Identity, l.grant.Pass, l.grant.Segment, l.dry, w.mayGrow(l.grant, l.end))
					}
				}
			}
		}
	}
	for _, t := range w.trainers {
		if t.alive {
			fmt.Fprintf(&b, "\n%s stopped=%v fenced=%v in=%v busy=%v step=%d", t.name, t.stopped, t.fenced, t.welcomed, t.busy, t.step)
			for _, r := range t.streams {
				fmt.Fprintf(&b, " [received %d yielded %d stepped %d acked %d ended %v]", r.received, r.yielded, r.stepped, r.acked, r.ended)
			}
		}
	}
	return b.String()
}
