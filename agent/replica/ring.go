package replica

import (
	"slices"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

// others are the agents of other nodes, in the order of the ring: the next one first.
// agents are sorted by name.
func others(agents []*pb.Peer, self *pb.Peer) []*pb.Peer {
	var before, after []*pb.Peer
	for _, p := range agents {
		switch {
		case p.Agent == self.Agent || p.Memory == self.Memory || p.Address == "":
		case p.Agent < self.Agent:
			before = append(before, p)
		default:
			after = append(after, p)
		}
	}
	return append(after, before...)
}

// speaks says whether self copies for its node. Agents that share a node's memory see the
// same slots; the first of them by name copies them.
func speaks(agents []*pb.Peer, self *pb.Peer) bool {
	return !slices.ContainsFunc(agents, func(p *pb.Peer) bool { return p.Memory == self.Memory && p.Agent < self.Agent })
}
