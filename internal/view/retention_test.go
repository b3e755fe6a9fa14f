package view

import "testing"

func TestARecordThatIsGoneHasNoTimeLeft(t *testing.T) {
	gone := &Retention{Label: "clicks/2", By: "deleted", Warn: true}
	if got, want := gone.sentence("records"), "the oldest needed record of clicks/2 is deleted already"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got := gone.text(); got != "deleted !" {
		t.Errorf("got %q, want %q", got, "deleted !")
	}
	there := &Retention{Label: "clicks/2", By: "age", Seconds: 7500, Records: 40}
	if got, want := there.sentence("records"), "the oldest needed record for 2h5m at least, by age; 40 before it; nearest in clicks/2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
