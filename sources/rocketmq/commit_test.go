package rocketmq

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/headrace/headrace/internal/remoting"
	"github.com/headrace/headrace/sources"
)

// The broker is too busy to answer for one queue. The offsets of its other queues are committed all the same.
func TestAQueueWhoseOffsetIsNotCommittedKeepsNoOtherFromIt(t *testing.T) {
	f := newFake(t, 1)
	f.queues = 3
	f.write("one", 50)
	var mu sync.Mutex
	offsets := map[string]string{}
	replica := f.master()
	replica.fakeServer = serve(t, func(in fakeCommand) *fakeCommand {
		mu.Lock()
		defer mu.Unlock()
		queue := in.Ext["queueId"]
		switch in.Code {
		case 14: // what the group has
			if queue == "0" {
				return &fakeCommand{Code: remoting.SystemBusy, Remark: "too many requests"}
			}
			if offsets[queue] == "" {
				return &fakeCommand{Code: remoting.NoOffset}
			}
			return &fakeCommand{Ext: map[string]string{"offset": offsets[queue]}}
		case 15: // a commit
			offsets[queue] = in.Ext["commitOffset"]
			return &fakeCommand{}
		}
		return replica.answer(in)
	})
	o := f.options()
	o.Group = "g"
	s := f.source(o)
	var marks []sources.Mark
	for queue := range 3 {
		marks = append(marks, sources.Mark{Partition: sources.PartitionID(fmt.Sprint("rocketmq:c/b/t/", queue)), Position: sources.Position{Offset: 40}})
	}
	err := s.Commit(t.Context(), marks)
	if untold, is := errors.AsType[*sources.Untold](err); !is || len(untold.Errs) != 1 || untold.Errs[marks[0].Partition] == nil {
		t.Errorf("the error is %v, want one that names queue 0", err)
	}
	mu.Lock()
	defer mu.Unlock()
	for queue := 1; queue < 3; queue++ {
		if got := offsets[strconv.Itoa(queue)]; got != "40" {
			t.Errorf("queue %d has the offset %q, want 40", queue, got)
		}
	}
}
