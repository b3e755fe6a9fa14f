package view

import (
	"strings"
	"testing"
)

func TestASourceThatDoesNotAnswerIsShownEverywhere(t *testing.T) {
	v := sample()
	v.Datasets[0].Silence = &Silence{SinceMS: 1767225600000, Seconds: 45.4, Reason: "clicks/2: the broker does not answer"}
	v.Datasets[0].ListingComplete = false
	const says = "the source has not answered since "
	shows := func(where, text, more string) {
		t.Helper()
		if !strings.Contains(text, says) || !strings.Contains(text, "(45s)") || !strings.Contains(text, more) {
			t.Errorf("%s shows\n%s", where, text)
		}
	}
	var b strings.Builder
	v.Write(&b, 0)
	shows("top", b.String(), "running (no answer from the source)")
	b.Reset()
	v.Datasets[0].write(&b)
	shows("status", b.String(), "clicks/2: the broker does not answer")
	shows("status", b.String(), "25.0% of what was listed before")
	b.Reset()
	DatasetTable(v.Datasets[:1]).Write(&b)
	if !strings.Contains(b.String(), says) {
		t.Errorf("the list shows\n%s", b.String())
	}
	s := &Screen{}
	s.Update(sample())
	s.Update(v)
	s.Update(sample())
	if all := strings.Join(s.events, "\n"); !strings.Contains(all, "dataset clicks: "+says) || !strings.Contains(all, "dataset clicks: the source answers again") {
		t.Errorf("top shows\n%s", all)
	}
	v.Datasets[0].Silence.Reason = ""
	if text := v.Datasets[0].Silence.sentence(); !strings.HasSuffix(text, "(45s)") {
		t.Errorf("%q", text)
	}
}
