package agent_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headrace/headrace/internal/frame"
)

// shared is what a trainer knows of the regions of its data connection.
type shared struct {
	regions map[uint32][]byte
	keep    bool // release a region only when it is new, and never again
	held    []frame.Use
	lent    int // frames that came in shared memory
}

func (sh *shared) drop() {
	for _, memory := range sh.regions {
		_ = unix.Munmap(memory)
	}
	sh.regions, sh.held = map[uint32][]byte{}, nil
}

// receiveShared handles a message about shared memory and those after it, until one brings a frame.
func (s *stream) receiveShared(h frame.Header) (*frame.Frame, error) {
	sh := &s.shared
	switch h.Type {
	case frame.TypeRegion:
		memory, err := region(s.data)
		if err != nil {
			return nil, err
		}
		sh.regions[h.Number] = memory
		if err := s.tell(frame.TypeRelease, frame.Use{Region: h.Number}); err != nil {
			return nil, err
		}
	case frame.TypeForget:
		_ = unix.Munmap(sh.regions[h.Number])
		delete(sh.regions, h.Number)
	case frame.TypeFrameAt:
		if err := frame.ReadPayload(s.data, h, &s.buf); err != nil {
			return nil, err
		}
		le := binary.LittleEndian
		use := frame.Use{Region: le.Uint32(s.buf), Count: le.Uint32(s.buf[4:])}
		at, n := le.Uint64(s.buf[8:]), le.Uint64(s.buf[16:])
		memory, ok := sh.regions[use.Region]
		if !ok || at > uint64(len(memory)) || n > uint64(len(memory))-at {
			return nil, fmt.Errorf("a frame of %d bytes at %d in region %d of %d", n, at, use.Region, len(memory))
		}
		s.buf = append(s.buf[:0], memory[at:at+n]...)
		sh.lent++
		if sh.keep {
			sh.held = append(sh.held, use)
		} else {
			// The agent may fill a region once it was released. Overwrite its bytes before, so a later use would be seen.
			for i := range memory {
				memory[i] = 0xA5
			}
			// Release it twice, as after an interrupt, and once for a use that is long over.
			if err := s.tell(frame.TypeRelease, use, use, frame.Use{Region: use.Region, Count: use.Count - 1}); err != nil {
				return nil, err
			}
		}
		return s.took(h)
	default:
		return nil, fmt.Errorf("%s on a data connection", h.Type)
	}
	return s.receive()
}

func (s *stream) tell(t frame.Type, uses ...frame.Use) error {
	b := make([]byte, frame.HeaderSize, 64)
	frame.Header{Type: t, Stream: s.number, Length: uint32(8 * len(uses))}.Put((*[frame.HeaderSize]byte)(b))
	for _, u := range uses {
		b = binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32(b, u.Region), u.Count)
	}
	_, err := s.data.Write(b)
	return err
}

// region receives the descriptor behind a REGION's header and maps it.
func region(c *net.UnixConn) ([]byte, error) {
	var size [frame.RegionSize]byte
	oob := make([]byte, unix.CmsgSpace(4))
	n, oobn, _, _, err := c.ReadMsgUnix(size[:], oob)
	if err != nil || n != len(size) {
		return nil, fmt.Errorf("%d bytes of a REGION: %w", n, err)
	}
	all, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(all) != 1 {
		return nil, fmt.Errorf("%d control messages: %w", len(all), err)
	}
	fds, err := unix.ParseUnixRights(&all[0])
	if err != nil || len(fds) != 1 {
		return nil, fmt.Errorf("%d descriptors: %w", len(fds), err)
	}
	defer unix.Close(fds[0])
	if err := unix.Ftruncate(fds[0], 0); err == nil {
		return nil, fmt.Errorf("a region can be made shorter while the other side uses it")
	}
	return unix.Mmap(fds[0], 0, int(binary.LittleEndian.Uint64(size[:])), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
}

// mappedRegions counts the mapped regions of this process, which is agent and trainer in one.
func mappedRegions(t *testing.T) int {
	t.Helper()
	maps := must(os.ReadFile("/proc/self/maps"))(t)
	return strings.Count(string(maps), "/memfd:headrace")
}

func sharedStream(t *testing.T, n, rows int, credit uint32) (*running, *trainer, *stream, map[[2]int64]int) {
	t.Helper()
	root, begins := input(t, n, 777)
	m := newMaster(t, "shared", fmt.Sprintf(lines, root), root)
	a := start(t, m, socketIn(t), nil)
	tr := must(hello(a.socket, frame.Hello{WorldSize: 1}))(t)
	s := must(tr.open(1, frame.Open{Dataset: "lines", Rows: uint32(rows), Track: true}))(t)
	check(t, s.credit(credit))
	return a, tr, s, begins
}

func TestFramesComeInSharedMemoryAndItsEndIsTheirConnections(t *testing.T) {
	before := mappedRegions(t) // left by earlier tests, whose trainers did not unmap them
	_, tr, s, begins := sharedStream(t, 20_000, 10, 4)
	seen := map[int]int{}
	drainStream(t, s, 10, begins, seen)
	for i := range 20_000 {
		if seen[i] != 1 {
			t.Fatalf("record %d came %d times", i, seen[i])
		}
	}
	if s.shared.lent == 0 || mappedRegions(t) <= before {
		t.Errorf("%d frames came in shared memory, in %d mappings; %d mappings were there before", s.shared.lent, mappedRegions(t), before)
	}
	check(t, s.acked(s.through))
	s.close()
	tr.bye()
	eventually(t, "the agent keeps no region of a connection that has ended", func() bool { return mappedRegions(t) <= before })
}

// A region that the trainer does not release is not filled again. Further frames come over the socket.
func TestATrainerThatReleasesNothingGetsItsFramesOverTheSocket(t *testing.T) {
	_, tr, s, begins := sharedStream(t, 40_000, 100, 64)
	s.shared.keep = true
	seen := map[int]int{}
	copies := map[frame.Use][]byte{}
	for range 350 {
		b := must(s.next(0))(t)
		for i, at := range b.offsets {
			seen[begins[[2]int64{b.segment[i], at}]]++
		}
		for _, u := range s.shared.held {
			if copies[u] == nil {
				copies[u] = bytes.Clone(s.shared.regions[u.Region])
			}
		}
		check(t, s.step(int64(s.through)+1, 1))
		check(t, s.credit(1))
	}
	for id, n := range seen {
		if n != 1 {
			t.Fatalf("record %d came %d times", id, n)
		}
	}
	if len(copies) == 0 {
		t.Fatal("no frame came in shared memory")
	}
	for u, was := range copies {
		if !bytes.Equal(was, s.shared.regions[u.Region]) {
			t.Errorf("region %d was filled again before the trainer released it", u.Region)
		}
	}
	s.shared.keep = false
	drainStream(t, s, 100, begins, seen)
	if len(seen) != 40_000 {
		t.Errorf("%d of 40000 records came", len(seen))
	}
	s.close()
	tr.bye()
}

func TestForgottenRegionsAreGivenUpAndMadeAnew(t *testing.T) {
	_, tr, s, begins := sharedStream(t, 4000, 10, 4)
	s.shared.keep = true
	forgotten := 0
	for range 300 {
		_ = must(s.next(0))(t)
		for _, u := range s.shared.held {
			check(t, s.tell(frame.TypeForget, u))
			_ = unix.Munmap(s.shared.regions[u.Region])
			delete(s.shared.regions, u.Region)
			forgotten++
		}
		s.shared.held = nil
		check(t, s.step(int64(s.through)+1, 1))
		check(t, s.credit(1))
	}
	if forgotten < 2 {
		t.Errorf("%d regions were forgotten, want at least 2", forgotten)
	}
	s.shared.keep = false
	drainStream(t, s, 10, begins, map[int]int{})
	s.close()
	tr.bye()
}

func TestAReleaseOfWhatNobodyHasEndsTheConnection(t *testing.T) {
	for name, tell := range map[string]func(*stream) error{
		"a region that never existed": func(s *stream) error { return s.tell(frame.TypeRelease, frame.Use{Region: 1 << 30}) },
		"half a use": func(s *stream) error {
			b := [frame.HeaderSize + 4]byte{}
			frame.Header{Type: frame.TypeRelease, Stream: s.number, Length: 4}.Put((*[frame.HeaderSize]byte)(b[:]))
			_, err := s.data.Write(b[:])
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, tr, s, _ := sharedStream(t, 20_000, 10, 1)
			check(t, tell(s))
			for {
				if _, err := s.receive(); err != nil {
					break
				}
			}
			m := must(tr.expect(frame.TypeError))(t)
			if !strings.Contains(string(m.payload), `"protocol"`) {
				t.Errorf("the agent answered %s", m.payload)
			}
			tr.drop()
			s.shared.drop()
		})
	}
}
