package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/headrace/headrace/internal/demo/clicklog"
)

// Kill is one SIGKILL, written down by whoever sent it. Times are
// CLOCK_MONOTONIC in ns; 0 where it did not happen.
type Kill struct {
	What     string `json:"what"` // trainer | agent | master
	Name     string `json:"name"`
	PID      int    `json:"pid"`
	At       int64  `json:"at_ns"`
	Back     int64  `json:"back_ns"`    // its successor was started
	Released int64  `json:"release_ns"` // first grant of its rows to another; master: first grant after it
}

// Killed is a kill as the report shows it, times from the first trainer's start.
type Killed struct {
	What      string   `json:"what"`
	Name      string   `json:"name"`
	PID       int      `json:"pid"`
	AtSeconds float64  `json:"at_s"`
	BackMS    *float64 `json:"back_ms"`
	ReleaseMS *float64 `json:"release_ms"`
}

// Report is what the quick start ends with.
type Report struct {
	Counts
	Kills           []Killed            `json:"kills"`
	ReleaseMS       map[string]*float64 `json:"release_ms"` // by what was killed
	MakespanSeconds float64             `json:"makespan_s"`
	MakespanRatio   float64             `json:"makespan_ratio"`
	WorkerShare     map[string]float64  `json:"worker_share"` // by rank: share of all applications
	WorkerRate      map[string]float64  `json:"worker_rate"`  // by rank: rows/s that it is paced to
	AUC             float64             `json:"auc"`
	AUCBefore       float64             `json:"auc_before_drift"` // over the last tenth of the log before it
	AUCAfter        float64             `json:"auc_after_drift"`  // over the first tenth after it
	LogLoss         float64             `json:"log_loss"`
	LogLossBefore   float64             `json:"log_loss_before_drift"`
	LogLossAfter    float64             `json:"log_loss_after_drift"`
	OverTime        []Window            `json:"over_time"` // by tenths of the log
	BatchRows       int                 `json:"batch_rows"`
	ShortBatches    int                 `json:"short_batches"`
	TrainerCPU      float64             `json:"trainer_cpu_s"` // of the trainers that saw the end of data
	CPU             map[string]float64  `json:"cpu"`           // share of all cores, by kind of process; set by the demo
	Clean           bool                `json:"clean"`
}

// KillsName is the file of kills beside the journals.
const KillsName = "kills.json"

// FromFolders reads truth, journals (*.journal) and kills, and computes.
func FromFolders(truthDir, journalDir string) (*Report, error) {
	truth, err := clicklog.ReadTruth(truthDir)
	if err != nil {
		return nil, err
	}
	paths, err := filepath.Glob(filepath.Join(journalDir, "*.journal"))
	if err != nil {
		return nil, err
	}
	var journals []*Journal
	for _, path := range paths {
		j, err := ReadJournal(path, truth)
		if err != nil {
			return nil, err
		}
		journals = append(journals, j)
	}
	var kills []Kill
	text, err := os.ReadFile(filepath.Join(journalDir, KillsName))
	if err == nil {
		err = json.Unmarshal(text, &kills)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	return Compute(truth, journals, kills)
}

// Compute makes the report.
func Compute(truth *clicklog.Truth, journals []*Journal, kills []Kill) (*Report, error) {
	if len(journals) == 0 {
		return nil, errors.New("there is no journal: no trainer has started")
	}
	killed := map[int]int64{}
	for _, k := range kills {
		killed[k.PID] = k.At
	}
	for _, j := range journals {
		if _, dead := killed[j.About.PID]; j.Torn && !dead {
			return nil, fmt.Errorf("journal %s ends inside an entry, but nobody killed process %d", j.Name, j.About.PID)
		}
	}
	r := &Report{Counts: count(truth.Records, journals, killed)}
	r.MakespanSeconds, r.MakespanRatio = makespan(truth.Records, journals, killed)
	r.addKills(kills, journals)
	r.addWorkers(journals)

	p := predictions(truth.Records, journals)
	all := measure(truth, p, 0, truth.Records)
	tenth := truth.Records / 10
	before, after := measure(truth, p, truth.Drift-tenth, truth.Drift), measure(truth, p, truth.Drift, truth.Drift+tenth)
	r.AUC, r.AUCBefore, r.AUCAfter = all.AUC, before.AUC, after.AUC
	r.LogLoss, r.LogLossBefore, r.LogLossAfter = all.LogLoss, before.LogLoss, after.LogLoss
	for k := range 10 {
		r.OverTime = append(r.OverTime, measure(truth, p, k*truth.Records/10, (k+1)*truth.Records/10))
	}
	r.Clean = r.Never == 0 && r.Foreign == 0 && r.TwiceUnexplained == 0
	return r, nil
}

func (r *Report) addKills(kills []Kill, journals []*Journal) {
	start := slices.MinFunc(journals, func(a, b *Journal) int { return int(a.Opened - b.Opened) }).Opened
	r.ReleaseMS = map[string]*float64{}
	r.Kills = []Killed{}
	since := func(at, then int64) *float64 {
		if then == 0 {
			return nil
		}
		ms := float64(then-at) / 1e6
		return &ms
	}
	for _, k := range kills {
		release := since(k.At, k.Released)
		r.Kills = append(r.Kills, Killed{k.What, k.Name, k.PID, float64(k.At-start) / 1e9, since(k.At, k.Back), release})
		r.ReleaseMS[k.What] = release
	}
}

func (r *Report) addWorkers(journals []*Journal) {
	r.WorkerShare, r.WorkerRate = map[string]float64{}, map[string]float64{}
	total := 0.0
	for _, j := range journals {
		rank := strconv.Itoa(j.About.Rank)
		r.WorkerRate[rank] = j.About.Rate
		r.BatchRows = j.About.BatchRows
		r.TrainerCPU += j.CPUSeconds
		for _, b := range j.Batches {
			if len(b.Records) != j.About.BatchRows {
				r.ShortBatches++
			}
			if b.Applied != 0 {
				r.WorkerShare[rank] += float64(len(b.Records))
				total += float64(len(b.Records))
			}
		}
	}
	for rank := range r.WorkerShare {
		r.WorkerShare[rank] /= total
	}
}

// Write writes the report as JSON, and makes the file's folder.
func (r *Report) Write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}
