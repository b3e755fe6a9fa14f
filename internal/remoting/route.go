package remoting

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
)

const (
	codeRoute   = 105
	codeCluster = 106
	// MasterID is the id of a broker's master; other ids are slaves.
	MasterID = 0
)

// Broker is one broker of a cluster: a master and its slaves.
type Broker struct {
	Cluster, Name string
	Replicas      []Replica // the master first
}

// Replica is one process of a broker.
type Replica struct {
	ID   int64
	Addr string
}

// Queues is how many queues of a topic a broker has.
type Queues struct {
	Broker      string
	Read, Write int
	Perm        int
}

// Readable: a consumer may read.
func (q Queues) Readable() bool { return q.Perm&4 != 0 }

// Route is where a topic is, as far as the name servers know now. They forget a
// broker that does not run.
type Route struct {
	Brokers []Broker
	Queues  []Queues
}

// Broker finds a broker by name.
func (r Route) Broker(name string) (Broker, bool) {
	i := slices.IndexFunc(r.Brokers, func(b Broker) bool { return b.Name == name })
	if i < 0 {
		return Broker{}, false
	}
	return r.Brokers[i], true
}

type brokerData struct {
	Cluster string            `json:"cluster"`
	Name    string            `json:"brokerName"`
	Addrs   map[string]string `json:"brokerAddrs"`
}

func (d brokerData) broker() (Broker, error) {
	b := Broker{Cluster: d.Cluster, Name: d.Name}
	for text, addr := range d.Addrs {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil || addr == "" {
			return b, fmt.Errorf("broker %s has the address %q with the id %q", d.Name, addr, text)
		}
		b.Replicas = append(b.Replicas, Replica{id, addr})
	}
	slices.SortFunc(b.Replicas, func(x, y Replica) int { return cmp.Compare(x.ID, y.ID) })
	return b, nil
}

// Route asks where a topic is. A topic that the name servers do not know is an
// *Error with the code TopicUnknown.
func (c *Client) Route(ctx context.Context, topic string) (Route, error) {
	a, err := c.ask(ctx, func() *Command {
		return &Command{Code: codeRoute, Ext: map[string]string{"topic": topic, "acceptStandardJsonOnly": "true"}}
	})
	if err != nil {
		return Route{}, err
	}
	var said struct {
		Brokers []brokerData `json:"brokerDatas"`
		Queues  []struct {
			Broker string `json:"brokerName"`
			Read   int    `json:"readQueueNums"`
			Write  int    `json:"writeQueueNums"`
			Perm   int    `json:"perm"`
		} `json:"queueDatas"`
	}
	if err := json.Unmarshal(a.Body, &said); err != nil {
		return Route{}, fmt.Errorf("route of topic %s: %w", topic, err)
	}
	var r Route
	for _, d := range said.Brokers {
		b, err := d.broker()
		if err != nil {
			return Route{}, fmt.Errorf("route of topic %s: %w", topic, err)
		}
		r.Brokers = append(r.Brokers, b)
	}
	for _, q := range said.Queues {
		if q.Read < 0 || q.Read > 1<<16 {
			return Route{}, fmt.Errorf("route of topic %s: broker %s has %d queues", topic, q.Broker, q.Read)
		}
		r.Queues = append(r.Queues, Queues{q.Broker, q.Read, q.Write, q.Perm})
	}
	slices.SortFunc(r.Brokers, func(x, y Broker) int { return cmp.Compare(x.Name, y.Name) })
	slices.SortFunc(r.Queues, func(x, y Queues) int { return cmp.Compare(x.Broker, y.Broker) })
	return r, nil
}

// Brokers lists the brokers that run, of all clusters.
func (c *Client) Brokers(ctx context.Context) ([]Broker, error) {
	a, err := c.ask(ctx, func() *Command { return &Command{Code: codeCluster} })
	if err != nil {
		return nil, err
	}
	var said struct {
		Brokers map[string]brokerData `json:"brokerAddrTable"`
	}
	if err := json.Unmarshal(quoteKeys(a.Body), &said); err != nil {
		return nil, fmt.Errorf("list of brokers: %w", err)
	}
	var all []Broker
	for _, d := range said.Brokers {
		b, err := d.broker()
		if err != nil {
			return nil, err
		}
		all = append(all, b)
	}
	slices.SortFunc(all, func(x, y Broker) int { return cmp.Compare(x.Name, y.Name) })
	return all, nil
}

// quoteKeys makes JSON of what RocketMQ's encoder writes, {0:"host:port"}: it does
// not quote keys that are numbers.
func quoteKeys(b []byte) []byte {
	out := make([]byte, 0, len(b)+16)
	text := false
	for i := 0; i < len(b); i++ {
		ch := b[i]
		switch {
		case text && ch == '\\' && i+1 < len(b):
			out = append(out, ch)
			i++
			ch = b[i]
		case ch == '"':
			text = !text
		case !text && (ch == '{' || ch == ','):
			n := i + 1
			for n < len(b) && (b[n] == '-' || b[n] >= '0' && b[n] <= '9') {
				n++
			}
			if n > i+1 && n < len(b) && b[n] == ':' {
				out = append(out, ch, '"')
				out = append(out, b[i+1:n]...)
				out = append(out, '"')
				i = n - 1
				continue
			}
		}
		out = append(out, ch)
	}
	return out
}
