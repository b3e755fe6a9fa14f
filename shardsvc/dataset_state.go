package shardsvc

// datasetState is where in its life a dataset is.
type datasetState uint8

const (
	giving  datasetState = iota // leases are granted
	paused                      // somebody paused it
	failed                      // it stopped, with a reason, until somebody resumes it
	removed                     // it is deleted: code that still has a pointer to it does nothing with it
)

// pause stops grants. A dataset that has failed stays failed, because people still need its
// reason.
func (d *dataset) pause() {
	if d.state == giving {
		d.state = paused
	}
}

// fail stops d with a reason. It returns false if d had failed before.
func (d *dataset) fail(reason string) bool {
	if d.state == failed {
		return false
	}
	d.state, d.reason = failed, reason
	return true
}

// resume has d give leases again, whatever stopped it.
func (d *dataset) resume() { d.state, d.reason, d.losses = giving, "", nil }

// load sets the stored state. A dataset that was paused and failed is failed.
func (s *datasetState) load(isPaused, isFailed bool) {
	switch {
	case isFailed:
		*s = failed
	case isPaused:
		*s = paused
	}
}
