package shardsvc

import "fmt"

// resumeOf is how a process goes on: as it says itself, or else as a dataset says.
func (lg *ledger) resumeOf(j *Join) Resume {
	r := j.Resume
	for _, d := range lg.datasets {
		if d != nil && r == ResumeDefault {
			r = d.opt.Resume
		}
	}
	return r
}

// badResume says why dataset d cannot say r. A model has one past, so all datasets of the
// job must agree.
func (lg *ledger) badResume(d *dataset, r Resume) error {
	if r == ResumeDefault {
		return nil
	}
	if r == ResumeAcked && !lg.folds {
		return fmt.Errorf("resume: acked: the model of a %s job ends with its processes, so the records that they acked are in no model. Say bound, or start", lg.cfg.Model)
	}
	for _, x := range lg.datasets {
		if x != nil && x != d && x.opt.Resume != ResumeDefault && x.opt.Resume != r {
			return fmt.Errorf("resume: %s, but dataset %q of the same job says %s: a model has one past, so they must agree", r, x.name, x.opt.Resume)
		}
	}
	return nil
}
