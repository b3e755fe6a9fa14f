package suggest

import "testing"

func TestClosestForgivesATypoAndNothingMore(t *testing.T) {
	names := []string{"clicks", "impressions", "users"}
	for word, want := range map[string]string{
		"click": "clicks", "cliks": "clicks", "lcicks": "clicks", "CLICKS": "clicks",
		"impresions": "impressions", "orders": "", "x": "", "": "",
	} {
		if got := Closest(word, names); got != want {
			t.Errorf("Closest(%q) = %q, want %q", word, got, want)
		}
	}
}

func TestHintListsWhatExistsWhenNothingIsNear(t *testing.T) {
	if got := Hint("orders", []string{"users", "clicks"}, "datasets"); got != "datasets: clicks, users" {
		t.Errorf("got %v, want %v", got, "datasets: clicks, users")
	}
	if got := Hint("orders", nil, "datasets"); got != "there are no datasets" {
		t.Errorf("got %v, want %v", got, "there are no datasets")
	}
	if got := Hint("click", []string{"clicks"}, "datasets"); got != "did you mean clicks?" {
		t.Errorf("got %v, want %v", got, "did you mean clicks?")
	}
}
