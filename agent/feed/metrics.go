package feed

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the agent's. With a nil Registerer they are counted and not exported.
type Metrics struct {
	Buffer       prometheus.GaugeFunc
	DecodeErrors *prometheus.CounterVec
	Wait, Step   prometheus.Counter
	Delivered    prometheus.Counter
	Frames       prometheus.Counter
	Lent         prometheus.Counter
}

// NewMetrics registers them with r; buffered is read at each scrape.
func NewMetrics(r prometheus.Registerer, buffered func() int64) (*Metrics, error) {
	m := &Metrics{
		Buffer: prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "headrace_agent_buffer_bytes", Help: "Bytes decoded and not yet delivered to a trainer."}, func() float64 { return float64(buffered()) }),
		DecodeErrors: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "headrace_decode_errors_total", Help: "Values that could not be decoded, by column."}, []string{"field"}),
		Wait: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headrace_trainer_wait_seconds_total", Help: "Time that trainers waited for a batch."}),
		Step: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headrace_trainer_step_seconds_total", Help: "Time that trainers spent between a batch and its step."}),
		Delivered: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headrace_agent_delivered_bytes_total", Help: "Bytes of frames handed to trainers."}),
		Frames: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headrace_agent_frames_total", Help: "Frames handed to trainers."}),
		Lent: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "headrace_agent_shared_frames_total", Help: "Frames handed to trainers in shared memory, and not over the socket."}),
	}
	if r == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.Buffer, m.DecodeErrors, m.Wait, m.Step, m.Delivered, m.Frames, m.Lent} {
		if err := r.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *Metrics) addTimes(wait, step float64) {
	m.Wait.Add(max(0, wait))
	m.Step.Add(max(0, step))
}

func (m *Metrics) decodeErrors(field string, n uint64) {
	if field == "" {
		field = "$value"
	}
	m.DecodeErrors.WithLabelValues(field).Add(float64(n))
}
