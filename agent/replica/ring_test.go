package replica

import (
	"strings"
	"testing"

	pb "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/shardsvc/cut"
)

// at names agents as "name:memory".
func at(names ...string) (all []*pb.Peer) {
	for _, n := range names {
		name, memory, _ := strings.Cut(n, ":")
		all = append(all, &pb.Peer{Agent: name, Memory: uint64(memory[0]), Address: "h:1"})
	}
	return all
}

func TestTheRingGoesAroundAndLeavesOutItsOwnNode(t *testing.T) {
	agents := at("a:1", "b:2", "c:3", "d:2")
	for _, tc := range []struct {
		self   int
		others string
		speaks bool
	}{{0, "bcd", true}, {1, "ca", true}, {2, "dab", true}, {3, "ac", false}} {
		got := ""
		for _, p := range others(agents, agents[tc.self]) {
			got += p.Agent
		}
		if got != tc.others {
			t.Errorf("agent %s goes around %s, want %s", agents[tc.self].Agent, got, tc.others)
		}
		if speaks(agents, agents[tc.self]) != tc.speaks {
			t.Errorf("agent %s copies for its node: %v, want %v", agents[tc.self].Agent, !tc.speaks, tc.speaks)
		}
	}
	if got := others(at("a:1"), at("a:1")[0]); len(got) != 0 {
		t.Errorf("a single agent has the peers %v, want none", got)
	}
}

func TestATrainerIsToldOfWhatItLacksTheNewestFirst(t *testing.T) {
	peer := at("b:2", "c:3")
	places := []place{
		{peer[0], &pb.Copy{Rank: 1, Cut: 30, Order: 30}},
		{peer[1], &pb.Copy{Rank: 0, Cut: 20, Order: 20, Replica: true}},
		{peer[0], &pb.Copy{Rank: 0, Cut: 30, Order: 30, Replica: true}},
		{peer[0], &pb.Copy{Rank: 0, Cut: 10, Order: 10, Replica: true}},
		{peer[0], &pb.Copy{Rank: 1, Cut: 40, Order: 40, Shard: true}},
	}
	for _, tc := range []struct {
		name string
		w    Wanted
		want string
	}{
		{"all ranks of a group have one state; the own copy comes first", Wanted{Rank: 0, Any: true}, "30:b0 30:b1 | 20:c0 | 10:b0"},
		{"a rank with a model of its own", Wanted{Rank: 0}, "30:b0 | 20:c0 | 10:b0"},
		{"a cut that it has is not looked for, nor an older one", Wanted{Rank: 0, Known: []uint64{20}}, "30:b0"},
		{"a part belongs to one rank", Wanted{Rank: 1, Any: true, Known: []uint64{30}}, "40:b1"},
	} {
		var cuts []string
		for _, copies := range byCut(places, &tc.w) {
			var one []string
			for _, p := range copies {
				one = append(one, strings.TrimLeft(cut.ID(p.copy.Cut).String(), "0"))
				one[len(one)-1] = map[string]string{"1e": "30", "14": "20", "a": "10", "28": "40"}[one[len(one)-1]] + ":" + p.at.Agent + string(rune('0'+p.copy.Rank))
			}
			cuts = append(cuts, strings.Join(one, " "))
		}
		if got := strings.Join(cuts, " | "); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}
