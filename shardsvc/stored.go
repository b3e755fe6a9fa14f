package shardsvc

// loading gathers stored pairs. Keys come in the order of their letters, and that is not
// the order in which the core can use them.
type loading struct {
	job       *jobValue
	datasets  []stored[datasetValue]
	parts     []stored[partitionValue]
	segs      []stored[segmentValue]
	settled   []stored[settledValue]
	acks      []stored[ackValue]
	tries     []stored[triesValue]
	ranks     []stored[rankValue]
	agents    []stored[agentValue]
	excluded  []stored[exclusionValue]
	dropped   []stored[dropValue]
	letters   []stored[letterValue]
	cuts      []stored[cutValue]
	removed   []stored[removedValue]
	landed    []stored[landedValue]
	leftovers []stored[leftoverValue]
	done      bool
}

type stored[V any] struct {
	key key
	val V
}

func newLoading() *loading { return &loading{} }

func load[V any](to *[]stored[V], k key, value []byte, decode func([]byte) (V, error)) error {
	v, err := decode(value)
	if err == nil {
		*to = append(*to, stored[V]{k, v})
	}
	return err
}
