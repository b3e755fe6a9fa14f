package link

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/semaphore"

	"github.com/headrace/headrace/internal/access"
)

// frame makes one frame of HTTP/2.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := make([]byte, 9, 9+len(payload))
	b[0], b[1], b[2], b[3], b[4] = byte(len(payload)>>16), byte(len(payload)>>8), byte(len(payload)), kind, flags
	binary.BigEndian.PutUint32(b[5:], stream)
	return append(b, payload...)
}

func message(length int) []byte {
	b := make([]byte, 5+length)
	binary.BigEndian.PutUint32(b[1:], uint32(length))
	return b
}

// dataFrames cuts a message into frames of DATA, some of them padded.
func dataFrames(rng *rand.Rand, stream uint32, b []byte) (all []byte) {
	for len(b) > 0 {
		n := min(len(b), 1+rng.IntN(1<<14))
		if rng.IntN(3) == 0 {
			pad := rng.IntN(256)
			payload := append([]byte{byte(pad)}, b[:n]...)
			all = append(all, frame(frameData, flagPadded, stream, append(payload, make([]byte, pad)...))...)
		} else {
			all = append(all, frame(frameData, 0, stream, b[:n])...)
		}
		b = b[n:]
	}
	return all
}

const preface24 = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// free returns how many bytes are free of a room of `of` bytes.
func free(room *semaphore.Weighted, of int64) int64 {
	low, high := int64(0), of
	for low < high {
		mid := (low + high + 1) / 2
		if room.TryAcquire(mid) {
			room.Release(mid)
			low = mid
		} else {
			high = mid - 1
		}
	}
	return low
}

func TestLargeMessagesTakeRoomUntilTheirCallIsAnswered(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	room := semaphore.NewWeighted(largeRoom)
	s := newScale(room, access.Agent, func() { t.Error("the connection was ended") })
	send := func(b []byte) {
		t.Helper()
		for len(b) > 0 {
			n := min(len(b), 1+rng.IntN(5000))
			if err := s.received(b[:n]); err != nil {
				t.Fatal(err)
			}
			b = b[n:]
		}
	}
	send([]byte(preface24))
	send(frame(0x4, 0, 0, make([]byte, 18))) // settings
	stream := uint32(1)
	want := int64(largeRoom)
	took := map[uint32]int64{}
	for range 40 {
		size := 1 + rng.IntN(3<<20)
		send(frame(frameHeaders, 0, stream, make([]byte, rng.IntN(50))))
		send(dataFrames(rng, stream, message(rng.IntN(largeMessage)))) // a small message first
		send(dataFrames(rng, stream, message(size)))
		if size >= largeMessage {
			took[stream] = int64(size)
			want -= int64(size)
		}
		for id, n := range took {
			if rng.IntN(2) == 0 {
				b := frame(frameHeaders, flagEndStream, id, make([]byte, 20))
				cut := rng.IntN(len(b))
				s.answered(b[:cut])
				s.answered(b[cut:])
				want += n
				delete(took, id)
			}
		}
		if got := free(room, largeRoom); got != want {
			t.Fatalf("%d bytes are free, want %d", got, want)
		}
		stream += 2
	}
	s.end()
	if got := free(room, largeRoom); got != largeRoom {
		t.Fatalf("%d bytes are free after the end", got)
	}
}

func TestWhatComesAfterAnAnswerIsNotTakenForAMessage(t *testing.T) {
	room := semaphore.NewWeighted(largeRoom)
	s := newScale(room, access.Agent, nil)
	whole := dataFrames(rand.New(rand.NewPCG(1, 1)), 1, append(message(2<<20), 0, 0xff, 0xff, 0xff, 0xff, 1, 2, 3))
	if err := s.received(append([]byte(preface24), frame(frameHeaders, 0, 1, nil)...)); err != nil {
		t.Fatal(err)
	}
	if err := s.received(whole[:100_000]); err != nil {
		t.Fatal(err)
	}
	s.answered(frame(frameReset, 0, 1, make([]byte, 4)))
	if err := s.received(whole[100_000:]); err != nil {
		t.Fatal(err)
	}
	if got := free(room, largeRoom); got != largeRoom {
		t.Fatalf("%d bytes are free", got)
	}
}

func TestALargeMessageWaitsForTheOneBeforeIt(t *testing.T) {
	synctest.Test(t, waitsForTheOneBeforeIt) // a caller waits for room for 5 s only, of the test's virtual time
}

func waitsForTheOneBeforeIt(t *testing.T) {
	room := semaphore.NewWeighted(largeRoom)
	first, second := newScale(room, access.Agent, nil), newScale(room, access.Operator, nil)
	begin := append([]byte(preface24), frame(frameHeaders, 0, 1, nil)...)
	begin = append(begin, frame(frameData, 0, 1, message(MaxMessage)[:5])...)
	if err := first.received(begin); err != nil {
		t.Fatal(err)
	}
	in := make(chan error, 1)
	go func() { in <- second.received(begin) }()
	synctest.Wait()
	select {
	case err := <-in:
		t.Fatalf("the second message did not wait for the first: %v", err)
	default:
	}
	first.answered(frame(frameHeaders, flagEndStream, 1, nil))
	if err := <-in; err != nil {
		t.Fatal(err)
	}
	second.end()
}

func TestAMessageThatARoleMayNotSendEndsTheConnection(t *testing.T) {
	room := semaphore.NewWeighted(largeRoom)
	for _, c := range []struct {
		roles access.Roles
		bytes int
		good  bool
	}{
		{access.Viewer, 1 << 20, true}, {access.Viewer, 1<<20 + 1, false},
		{access.Pusher, 64 << 20, true}, {access.Pusher | access.Viewer, 66 << 20, false},
		{access.Agent, MaxMessage, true}, {access.Owner, MaxMessage + 1, false},
	} {
		s := newScale(room, c.roles, nil)
		b := append([]byte(preface24), frame(frameHeaders, 0, 1, nil)...)
		head := make([]byte, 5)
		binary.BigEndian.PutUint32(head[1:], uint32(c.bytes))
		if err := s.received(append(b, frame(frameData, 0, 1, head)...)); (err == nil) != c.good {
			t.Errorf("%s, %d bytes: %v", c.roles, c.bytes, err)
		}
		s.end()
	}
}

// A caller that opens streams and never ends them does not make the scale grow.
func TestAScaleRemembersOnlySoManyStreams(t *testing.T) {
	s := newScale(semaphore.NewWeighted(largeRoom), access.Viewer, nil)
	err := s.received([]byte(preface24))
	for id := uint32(1); err == nil && id < 3*maxOpen; id += 2 {
		err = s.received(frame(frameHeaders, 0, id, nil))
	}
	if err == nil {
		t.Fatal("any number of streams was accepted")
	}
}

func FuzzScale(f *testing.F) {
	f.Add(append([]byte(preface24), dataFrames(rand.New(rand.NewPCG(1, 2)), 1, message(100))...), frame(frameHeaders, flagEndStream, 1, nil), 7)
	f.Add(append([]byte(preface24), frame(frameHeaders, 0, 3, []byte("x"))...), frame(frameReset, 0, 3, nil), 1)
	f.Add(append([]byte(preface24), frame(frameData, flagPadded, 1, []byte{200, 1, 2})...), []byte{}, 3)
	f.Fuzz(func(t *testing.T, in, out []byte, step int) {
		const all = 1 << 40
		room := semaphore.NewWeighted(all)
		s := newScale(room, access.Owner, func() {})
		step = max(1, step)
		for len(in) > 0 || len(out) > 0 {
			n := min(step, len(in))
			if s.received(in[:n]) != nil {
				break
			}
			in = in[n:]
			n = min(step, len(out))
			s.answered(out[:n])
			out = out[n:]
		}
		s.end()
		if got := free(room, all); got != all {
			t.Fatalf("%d bytes are free after the end", got)
		}
	})
}

// A call whose deadline passes is answered while its message still waits for room. Then the scale itself must give
// the room back, and must not end the connection because of a message that is not read.
func TestACallThatIsAnsweredWhileItsMessageWaitsKeepsNoRoom(t *testing.T) {
	room := semaphore.NewWeighted(largeRoom)
	if !room.TryAcquire(largeRoom) {
		t.Fatal("the room is not free")
	}
	s := newScale(room, access.Agent, func() { t.Error("the connection was ended") })
	if err := s.received(append([]byte(preface24), frame(frameHeaders, 0, 1, nil)...)); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- s.received(frame(frameData, 0, 1, message(2 << 20)[:10_000])) }()
	for waits := false; !waits; { // until it waits for room: then its length was read, and the lock is free
		s.mu.Lock()
		waits = s.open[1].left > 0
		s.mu.Unlock()
	}
	s.answered(frame(frameHeaders, flagEndStream, 1, nil))
	room.Release(largeRoom)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if n := free(room, largeRoom); n != largeRoom {
		t.Errorf("%d bytes are free, of %d", n, largeRoom)
	}
}
