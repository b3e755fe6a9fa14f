package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/headrace/headrace/internal/proof/demo/clicklog"
)

// StoppedTrainer is the What of a Kill without a signal: a trainer ended by itself, rightly, because its
// session was over.
const StoppedTrainer = "stopped trainer"

// Kill is one SIGKILL, as its sender recorded it. Times are CLOCK_MONOTONIC in ns; 0: it did not happen.
type Kill struct {
	What     string `json:"what"` // trainer | agent | master | broker | StoppedTrainer
	Name     string `json:"name"`
	PID      int    `json:"pid"`
	At       int64  `json:"at_ns"`
	Back     int64  `json:"back_ns"`    // start of its successor
	Released int64  `json:"release_ns"` // first grant of its rows to another; master: first grant after it; broker: see afterBroker
}

// Killed is a kill in the report. Its times count from the first trainer's start.
type Killed struct {
	What      string   `json:"what"`
	Name      string   `json:"name"`
	PID       int      `json:"pid"`
	AtSeconds float64  `json:"at_s"`
	BackMS    *float64 `json:"back_ms"`
	ReleaseMS *float64 `json:"release_ms"`
}

// Report is the result of the quick start.
type Report struct {
	Counts
	Kills           []Killed            `json:"kills"`
	ReleaseMS       map[string]*float64 `json:"release_ms"` // by what was killed
	MakespanSeconds float64             `json:"makespan_s"`
	MakespanRatio   float64             `json:"makespan_ratio,omitempty"` // only if no producer sets the pace
	WorkerShare     map[string]float64  `json:"worker_share"`             // by rank: share of all applications
	WorkerRate      map[string]float64  `json:"worker_rate"`              // by rank: rows/s of its pace
	AUC             float64             `json:"auc"`
	AUCBefore       float64             `json:"auc_before_drift"` // over the last tenth of the log before the drift
	AUCAfter        float64             `json:"auc_after_drift"`  // over the first tenth of the log after the drift
	LogLoss         float64             `json:"log_loss"`
	LogLossBefore   float64             `json:"log_loss_before_drift"`
	LogLossAfter    float64             `json:"log_loss_after_drift"`
	OverTime        []Window            `json:"over_time"` // by tenths of the log
	BatchRows       int                 `json:"batch_rows"`
	ShortBatches    int                 `json:"short_batches"`
	TrainerCPU      float64             `json:"trainer_cpu_s"`             // of the trainers that saw the end of data
	CPU             map[string]float64  `json:"cpu"`                       // share of all cores, by kind of process; set by the demo
	Live            *Live               `json:"live,omitempty"`            // about records that were produced during training
	Groups          []*Group            `json:"consumer_groups,omitempty"` // what consumer groups did with the same records
	Clean           bool                `json:"clean"`
}

// KillsName is the file of kills in a folder of journals.
const KillsName = "kills.json"

// Folders are the folders of a run. Groups are those with the journals of the consumer groups.
type Folders struct {
	Truth, Journals string
	Groups          []string
}

// Compute reads truth, journals (*.journal) and kills, and computes.
func (f Folders) Compute() (*Report, error) {
	truth, err := clicklog.ReadTruth(f.Truth)
	if err != nil {
		return nil, err
	}
	journals, kills, err := readFolder(f.Journals, truth)
	if err != nil {
		return nil, err
	}
	if truth.Topic == nil {
		return Compute(truth, journals, kills)
	}
	sent, err := readProduced(f.Truth, truth)
	if err != nil {
		return nil, err
	}
	r, err := Compute(truth, journals, afterBroker(kills, sent, journals))
	if err != nil {
		return nil, err
	}
	r.MakespanRatio = 0
	r.Live = live(sent, journals)
	for _, dir := range f.Groups {
		if journals, kills, err = readFolder(dir, truth); err != nil {
			return nil, err
		}
		g, err := computeGroup(truth, journals, afterBroker(kills, sent, journals), sent)
		if err != nil {
			return nil, err
		}
		g.Title = filepath.Base(dir)
		r.Groups = append(r.Groups, g)
		// Losses and repeats of the group are not our faults. Foreign records would mean that it did not get
		// the same records.
		r.Clean = r.Clean && g.Foreign == 0
	}
	return r, nil
}

func readFolder(dir string, truth *clicklog.Truth) (journals []*Journal, kills []Kill, err error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		return nil, nil, err
	}
	for _, path := range paths {
		j, err := readJournal(path, truth)
		if err != nil {
			return nil, nil, err
		}
		journals = append(journals, j)
	}
	text, err := os.ReadFile(filepath.Join(dir, KillsName))
	if err == nil {
		err = json.Unmarshal(text, &kills)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, err
	}
	return journals, kills, nil
}

// Compute computes the report of a log that is read from files.
func Compute(truth *clicklog.Truth, journals []*Journal, kills []Kill) (*Report, error) {
	if len(journals) == 0 {
		return nil, errors.New("there is no journal, so no trainer has started")
	}
	if err := tornOnlyIfKilled(journals, kills); err != nil {
		return nil, err
	}
	killed := diedAt(kills)
	r := &Report{Counts: count(truth.Records, journals, kills)}
	r.MakespanSeconds, r.MakespanRatio = makespan(truth.Records, journals, killed)
	r.Kills, r.ReleaseMS = times(kills, journals)
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

func diedAt(kills []Kill) map[int]int64 {
	at := map[int]int64{}
	for _, k := range kills {
		at[k.PID] = k.At
	}
	return at
}

func tornOnlyIfKilled(journals []*Journal, kills []Kill) error {
	killed := diedAt(kills)
	for _, j := range journals {
		if _, dead := killed[j.About.PID]; j.Torn && !dead {
			return fmt.Errorf("journal %s ends inside an entry, but nobody killed process %d", j.Name, j.About.PID)
		}
	}
	return nil
}

// times gives the kills, with times since the first trainer's start.
func times(kills []Kill, journals []*Journal) (all []Killed, release map[string]*float64) {
	start := slices.MinFunc(journals, func(a, b *Journal) int { return int(a.Opened - b.Opened) }).Opened
	release, all = map[string]*float64{}, []Killed{}
	since := func(at, then int64) *float64 {
		if then == 0 {
			return nil
		}
		ms := float64(then-at) / 1e6
		return &ms
	}
	for _, k := range kills {
		ms := since(k.At, k.Released)
		all = append(all, Killed{k.What, k.Name, k.PID, float64(k.At-start) / 1e9, since(k.At, k.Back), ms})
		release[k.What] = ms
	}
	return all, release
}

func (r *Report) addWorkers(journals []*Journal) {
	r.WorkerShare, r.WorkerRate = shares(journals), map[string]float64{}
	for _, j := range journals {
		rank := strconv.Itoa(j.About.Rank)
		r.WorkerRate[rank] = j.About.Rate
		r.BatchRows = j.About.BatchRows
		r.TrainerCPU += j.CPUSeconds
		for _, b := range j.Batches {
			if len(b.Records) != j.About.BatchRows {
				r.ShortBatches++
			}
		}
	}
}

// shares is each rank's share of all applications.
func shares(journals []*Journal) map[string]float64 {
	by, total := map[string]float64{}, 0.0
	for _, j := range journals {
		for _, b := range j.Batches {
			if b.Applied != 0 {
				by[strconv.Itoa(j.About.Rank)] += float64(len(b.Records))
				total += float64(len(b.Records))
			}
		}
	}
	for rank := range by {
		by[rank] /= total
	}
	return by
}

// Write writes the report as JSON. It creates the folder of the file.
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
