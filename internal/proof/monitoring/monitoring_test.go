// Package monitoring loads docs/monitoring with Prometheus' own packages. It is a module of
// its own, because nothing of the product needs Prometheus: make test-monitoring
package monitoring

import (
	"bufio"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

const root = "../../.."

// A job over files that has just begun has no value for these metrics: they appear with trainers, a
// broker that deletes, event times, bad records or checkpoints. docs/CLI.md lists them, and another
// test compares that list with the code.
var comeLater = []string{
	"headrace_trainer_wait_seconds_total", "headrace_trainer_step_seconds_total",
	"headrace_retention_distance_records", "headrace_retention_distance_seconds", "headrace_retention_warning",
	"headrace_event_time_lag_seconds", "headrace_bad_records", "headrace_dead_letters_waiting",
	"headrace_checkpoint_step", "headrace_checkpoint_age_seconds", "headrace_decode_errors_total",
	"headrace_lease_reclaims_total", "headrace_acks_refused_total", "headrace_cuts_total",
}

func parse(t *testing.T, where, text string) parser.Expr {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Fatalf("%s: %s: %v", where, text, err)
	}
	return e
}

// metrics gives the names of metrics in an expression.
func metrics(e parser.Expr) (names []string) {
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			for _, m := range v.LabelMatchers {
				if m.Name == labels.MetricName {
					names = append(names, m.Value)
				}
			}
		}
		return nil
	})
	return names
}

// expressions gives the expressions of the alerts and of the dashboard. Each key says where it is.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	groups, errs := rulefmt.ParseFile(root+"/docs/monitoring/alerts.yaml", false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%+v: an alert needs a name, a severity, a summary and a description", r)
			}
			out["alert "+r.Alert] = r.Expr
		}
	}
	text, err := os.ReadFile(root + "/docs/monitoring/dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	var board struct {
		Title  string
		UID    string
		Panels []struct {
			ID      int
			Title   string
			Type    string
			GridPos struct{ H, W, X, Y int }
			Targets []struct{ Expr, RefID string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		t.Fatal(err)
	}
	ids := map[int]string{}
	for _, p := range board.Panels {
		if p.Title == "" || ids[p.ID] != "" || p.GridPos.W == 0 || p.GridPos.X+p.GridPos.W > 24 || len(p.Targets) == 0 {
			t.Errorf("panel %d %q: it needs a title, a unique id, a place and a target", p.ID, p.Title)
		}
		ids[p.ID] = p.Title
		for _, target := range p.Targets {
			// Grafana replaces these variables.
			expr := strings.NewReplacer("$__rate_interval", "5m", `"$dataset"`, `"clicks"`).Replace(target.Expr)
			out["panel "+p.Title+" "+target.RefID] = expr
		}
	}
	if len(groups.Groups) == 0 || len(board.Panels) < 8 || board.UID == "" {
		t.Errorf("found %d groups of alerts and %d panels, want some of both", len(groups.Groups), len(board.Panels))
	}
	return out
}

func TestEachExpressionIsRightAndNamesMetricsThatExist(t *testing.T) {
	page, err := os.ReadFile(root + "/docs/CLI.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := regexp.MustCompile("`(headrace_[a-z_]+)").FindAllStringSubmatch(string(page), -1)
	real := scrape(t)
	for where, text := range expressions(t) {
		names := metrics(parse(t, where, text))
		if len(names) == 0 {
			t.Errorf("%s names no metric: %s", where, text)
		}
		for _, name := range names {
			base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, "")
			if name == "up" {
				continue // a metric of Prometheus itself
			}
			if !slices.ContainsFunc(documented, func(m []string) bool { return m[1] == base }) {
				t.Errorf("%s: docs/CLI.md does not list the metric %s", where, base)
			}
			if !slices.Contains(real, name) && !slices.Contains(comeLater, base) {
				t.Errorf("%s: a real job has no metric %s; it has %s", where, name, strings.Join(real, " "))
			}
		}
	}
}

func TestNoAlertAddsUpWhatIsOfSeveralMasters(t *testing.T) {
	sums := 0
	for where, text := range expressions(t) {
		parser.Inspect(parse(t, where, text), func(n parser.Node, _ []parser.Node) error {
			if sum, ok := n.(*parser.AggregateExpr); ok && strings.HasPrefix(where, "alert ") {
				if sums++; sum.Without || !slices.Contains(sum.Grouping, "instance") {
					t.Errorf("%s adds up over masters: one job that trains hides another one with a dataset of the same name that does not: %s", where, sum)
				}
			}
			return nil
		})
	}
	if sums == 0 {
		t.Error("no alert adds anything up")
	}
}

// A series with a reason or a column begins with its first event, at a number above 0. increase() counts
// what comes after that. So an alert that goes by increase() alone is silent at the first event.
func TestAlertsHearOfTheFirstEventOfASeries(t *testing.T) {
	begins := []string{"headrace_bad_records", "headrace_acks_refused_total", "headrace_lease_reclaims_total", "headrace_cuts_total", "headrace_decode_errors_total"}
	found := 0
	for where, text := range expressions(t) {
		if !strings.HasPrefix(where, "alert ") {
			continue
		}
		parser.Inspect(parse(t, where, text), func(n parser.Node, _ []parser.Node) error {
			call, ok := n.(*parser.Call)
			if !ok || call.Func.Name != "increase" {
				return nil
			}
			for _, name := range metrics(call) {
				if !slices.Contains(begins, name) {
					continue
				}
				if found++; !strings.Contains(text, name+" unless "+name+" offset 15m") {
					t.Errorf("%s is silent when the first series of %s comes: %s", where, name, text)
				}
			}
			return nil
		})
	}
	if found == 0 {
		t.Error("no alert goes by the increase of a series that begins with an event")
	}
}

var address = regexp.MustCompile(`metrics=(127\.0\.0\.1:\d+)`)

// scrape starts a real job with a dataset and gives the names of the metrics that it exposes.
func scrape(t *testing.T) []string {
	t.Helper()
	binary, err := filepath.Abs(root + "/build/headrace")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("a.tsv", "1\n2\n")
	write("clicks.yaml", "name: clicks\nfiles: {root: ., paths: [\"*.tsv\"]}\ndecode:\n  format: tsv\n  columns: [{name: id, path: \"0\", dtype: int64}]\n")
	cmd := exec.CommandContext(t.Context(), binary, "up", "-f", "clicks.yaml", "--socket", filepath.Join(dir, "a.sock"))
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "HEADRACE_STATE="+filepath.Join(dir, "state"))
	logs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("make build: %v", err)
	}
	defer func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}()
	at := ""
	for lines := bufio.NewScanner(logs); at == "" && lines.Scan(); {
		if m := address.FindStringSubmatch(lines.Text()); m != nil {
			at = m[1]
		}
	}
	if at == "" {
		t.Fatal("the job's log does not say the address of /metrics")
	}
	go func() { _, _ = bufio.NewReader(logs).WriteTo(os.Stderr) }()
	token, err := os.ReadFile(filepath.Join(dir, "state", "viewer.token"))
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/metrics", at), nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	resp, err := (&http.Client{Timeout: time.Minute}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	seen := map[string]bool{}
	var names []string
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		name := regexp.MustCompile(`^headrace_[a-z_]+`).FindString(lines.Text())
		if name != "" && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	return names
}
