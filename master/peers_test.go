package master

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "github.com/headrace/headrace/api/headrace/v1"
)

func TestAgentsFindEachOtherAndOneThatIsSilentIsForgotten(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	p := newPeers("clicks", func() time.Time { return now })
	meet := func(agent string, known uint64) *pb.MeetReply {
		t.Helper()
		r, err := p.Meet(t.Context(), &pb.MeetRequest{Agent: agent, Address: "10.0.0.1:7072", Memory: 1, Known: known, Keeps: []*pb.Replica{{Step: 5}}})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	names := func(r *pb.MeetReply) (all []string) {
		for _, x := range r.Agents {
			all = append(all, x.Agent)
		}
		return all
	}
	first := meet("b", 0)
	if first.Settled || first.Job != "clicks" || fmt.Sprint(names(first)) != "[b]" {
		t.Errorf("the first agent got %v, want itself, not settled", first)
	}
	both := meet("a", 0)
	if fmt.Sprint(names(both)) != "[a b]" || both.Version == first.Version {
		t.Errorf("the second agent got %v, want a and b in a new version", both)
	}
	if again := meet("b", both.Version); again.Agents != nil || again.Version != both.Version {
		t.Errorf("nothing has changed, but agent b got %v", again)
	}
	now = now.Add(peerLives)
	if r := meet("b", both.Version); !r.Settled || r.Agents != nil {
		t.Errorf("after a while without a change agent b got %v, want settled", r)
	}
	now = now.Add(time.Millisecond)
	if r := meet("b", both.Version); fmt.Sprint(names(r)) != "[b]" {
		t.Errorf("agent a was not heard for too long, but agent b got %v", r)
	}
	list, err := p.List(t.Context(), nil)
	if err != nil || len(list.Peers) != 1 || list.Peers[0].Keeps[0].Step != 5 {
		t.Errorf("the list of peers is %v (%v), want agent b with its replica of step 5", list, err)
	}
}

func TestAnAgentOfAnotherJobOrWithoutAnAddressIsRefused(t *testing.T) {
	p := newPeers("clicks", time.Now)
	for _, tc := range []struct {
		in   *pb.MeetRequest
		code codes.Code
	}{
		{&pb.MeetRequest{Agent: "a", Address: "h:1", Job: "other"}, codes.FailedPrecondition},
		{&pb.MeetRequest{Agent: "a"}, codes.InvalidArgument},
		{&pb.MeetRequest{Address: "h:1"}, codes.InvalidArgument},
		{&pb.MeetRequest{Agent: "a", Address: "h:1", Keeps: make([]*pb.Replica, mostKeeps+1)}, codes.InvalidArgument},
	} {
		if _, err := p.Meet(t.Context(), tc.in); status.Code(err) != tc.code {
			t.Errorf("the request %v got %v, want %v", tc.in, err, tc.code)
		}
	}
}
