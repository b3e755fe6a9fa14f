package ckpt

import (
	"context"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	headracev1 "github.com/headrace/headrace/api/headrace/v1"
	"github.com/headrace/headrace/flashckpt/manifest"
	"github.com/headrace/headrace/internal/ckpt/ckpttest"
)

// keeper is a master that keeps one cut, and notes each rewind.
type keeper struct {
	headracev1.UnimplementedCheckpointsServer
	kept    *headracev1.CutState
	rewound []string
}

func (k *keeper) Show(context.Context, *headracev1.ShowCutRequest) (*headracev1.ShowCutReply, error) {
	return &headracev1.ShowCutReply{Cut: k.kept, Body: []byte("{}")}, nil
}

func (k *keeper) Rewind(_ context.Context, r *headracev1.RewindRequest) (*headracev1.RewindReply, error) {
	if !r.DryRun {
		k.rewound = append(k.rewound, r.Path)
	}
	return &headracev1.RewindReply{}, nil
}

// unsynced cannot sync folders.
type unsynced struct {
	manifest.OS
	err error
}

func (u unsynced) SyncDir(string) error { return u.err }

// rewinds does a rewind with the keeper as master.
func rewinds(t *testing.T, k *keeper, r Rewinding) error {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	headracev1.RegisterCheckpointsServer(s, k)
	go func() { _ = s.Serve(l) }() // Stop ends it
	defer s.Stop()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	r.Ask, r.Confirm = time.Minute, func(*Rewound) error { return nil }
	r.Verify = func(ctx context.Context, c *manifest.Checkpoint) error { return Verifies(ctx, local, c, nil) }
	_, err = r.Run(t.Context(), headracev1.NewCheckpointsClient(conn), "default")
	return err
}

// Guarantee 3: what was answered survives power loss. The process that renamed the manifest may have died
// before it synced the folder, so a rewind syncs the folder first.
func TestNobodyGoesBackToACheckpointThatAPowerFailureMayTakeAway(t *testing.T) {
	folder := ckpttest.Save(t, t.TempDir(), 100, 1, 300, ckpttest.Unchanged)
	path := filepath.Join(folder, manifest.FileName)
	for err, back := range map[error]bool{nil: true, syscall.EROFS: true, syscall.EIO: false} {
		k := &keeper{}
		got := rewinds(t, k, Rewinding{To: folder, On: func(string) manifest.FS { return unsynced{err: err} }})
		if (got == nil) != back || (len(k.rewound) == 1 && k.rewound[0] == path) != back {
			t.Errorf("sync: %v; rewind: %v, went back to %v", err, got, k.rewound)
		}
	}
}

// The master does not know whether the checkpoint of a frozen cut was ever finished. So the rewind looks for its
// manifest.
func TestACutIsGoneBackToOnlyIfItsCheckpointIsThere(t *testing.T) {
	folder := ckpttest.Save(t, t.TempDir(), 100, 1, 300, ckpttest.Unchanged)
	there := filepath.Join(folder, manifest.FileName)
	for _, c := range []struct {
		state, path string
		unverified  bool
		back        bool
	}{
		{"frozen", there, false, true},
		{"frozen", folder + "-that-is-not-there/" + manifest.FileName, false, false},
		{"frozen", folder + "-that-is-not-there/" + manifest.FileName, true, false},
		{"bound", folder + "-that-is-not-there/" + manifest.FileName, false, false},
		{"bound", folder + "-that-is-not-there/" + manifest.FileName, true, true},
		{"carried", "", false, true},
	} {
		k := &keeper{kept: &headracev1.CutState{Cut: 0x640001, State: c.state, Path: c.path, Step: 100}}
		err := rewinds(t, k, Rewinding{To: "0000000000640001", Unverified: c.unverified, On: local})
		if (err == nil) != c.back || (len(k.rewound) == 1) != c.back {
			t.Errorf("%+v: %v, went back %d times", c, err, len(k.rewound))
		}
	}
}

// local returns this machine's file system for any path.
func local(string) manifest.FS { return manifest.OS{} }
