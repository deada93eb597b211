package l4

import (
	"bytes"
	"crypto/sha256"
	"hash"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// traffic is one direction of a random conversation: what an end sends, cut at
// random, and what the other end has got of it.
type traffic struct {
	data   []byte
	sent   int
	fin    bool
	got    []byte
	end    bool // the reader saw the FIN
	failed error
}

// TestNoByteIsLostDoubledOrMovedWhateverTheSchedule writes, ends, reads and stalls
// at random on both ends, with small and with large socket buffers.
func TestNoByteIsLostDoubledOrMovedWhateverTheSchedule(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		if !converse(t, seed) {
			t.Fatalf("seed %d", seed)
		}
	}
}

func converse(t *testing.T, seed uint64) bool {
	rnd := rand.New(rand.NewPCG(seed, 7))
	r := newRig(t, rnd.IntN(2) == 0, []int{0, 2304, 8192, 65536}[rnd.IntN(4)])
	var ways [2]traffic // by sender
	for s := range ways {
		ways[s].data = make([]byte, rnd.IntN(1<<uint(4+rnd.IntN(16))))
		for i := range ways[s].data {
			ways[s].data[i] = byte(rnd.Uint32())
		}
	}
	head := rnd.IntN(len(ways[Client].data)/2 + 1)
	r.relay.Start(Client, ways[Client].data[:head])
	ways[Client].sent = head
	for turn := 0; !(ways[Client].end && ways[Server].end); turn++ {
		if turn > 2_000_000 {
			t.Errorf("stuck: client %d of %d, server %d of %d", len(ways[Client].got), len(ways[Client].data), len(ways[Server].got), len(ways[Server].data))
			return false
		}
		s := Side(rnd.IntN(2))
		switch rnd.IntN(5) {
		case 0:
			r.say(s, &ways[s], rnd)
		case 1, 2:
			r.listen(s.Other(), &ways[s], rnd)
		default:
			r.loop.Step()
		}
		if turn%1000 == 999 { // loopback may need a moment of real time
			ts := unix.NsecToTimespec(int64(100 * time.Microsecond))
			_ = unix.Nanosleep(&ts, nil)
		}
	}
	r.loop.Step()
	ok := r.watch.finished == 1 && r.watch.err == 0 && r.relay.Held() == 0
	if !ok {
		t.Errorf("finished %d times with %v, holds %d", r.watch.finished, r.watch.err, r.relay.Held())
	}
	for s, w := range ways {
		if !bytes.Equal(w.got, w.data) || w.failed != nil {
			t.Errorf("side %d sent %d bytes, %d came, equal %v, %v", s, len(w.data), len(w.got), bytes.Equal(w.got, w.data), w.failed)
			ok = false
		}
	}
	return ok
}

func (r *rig) say(s Side, w *traffic, rnd *rand.Rand) {
	if w.sent == len(w.data) {
		if !w.fin {
			w.fin = true
			r.shutdown(s)
		}
		return
	}
	n := min(len(w.data)-w.sent, 1+rnd.IntN(1<<uint(rnd.IntN(17))))
	n, err := unix.Write(r.outer[s], w.data[w.sent:w.sent+n])
	if err != nil && err != unix.EAGAIN {
		w.failed = err
	}
	w.sent += max(n, 0)
}

func (r *rig) listen(s Side, w *traffic, rnd *rand.Rand) {
	if w.end {
		return
	}
	buf := make([]byte, 1+rnd.IntN(1<<uint(rnd.IntN(17))))
	n, err := unix.Read(r.outer[s], buf)
	switch {
	case err == unix.EAGAIN:
	case err != nil:
		w.failed, w.end = err, true
	case n == 0:
		w.end = true
	default:
		w.got = append(w.got, buf[:n]...)
	}
}

// TestARandomRSTNeverLooksLikeAnEnd cuts a random conversation with a RST: what
// the other end has got is a prefix of what was sent, and it does not end with a
// FIN.
func TestARandomRSTNeverLooksLikeAnEnd(t *testing.T) {
	for seed := range uint64(60) {
		rnd := rand.New(rand.NewPCG(seed, 8))
		r := newRig(t, rnd.IntN(2) == 0, []int{0, 4096, 32768}[rnd.IntN(3)])
		s := Side(rnd.IntN(2))
		w := traffic{data: make([]byte, 1<<20)}
		for i := range w.data {
			w.data[i] = byte(rnd.Uint32())
		}
		var back traffic
		back.data = bytes.Repeat([]byte("b"), rnd.IntN(1<<20))
		r.relay.Start(Client, nil)
		for range rnd.IntN(300) {
			switch rnd.IntN(5) {
			case 0, 1:
				r.say(s, &w, rnd)
			case 2:
				r.listen(s.Other(), &w, rnd)
			case 3:
				if back.sent < len(back.data) {
					r.say(s.Other(), &back, rnd)
				}
			default:
				r.loop.Step()
			}
		}
		r.reset(s)
		rest, end := r.read(s.Other())
		w.got = append(w.got, rest...)
		if !bytes.HasPrefix(w.data, w.got) {
			t.Fatalf("seed %d: %d bytes that are no prefix of what was sent", seed, len(w.got))
		}
		if end != unix.ECONNRESET {
			t.Fatalf("seed %d: the other end sees %v", seed, end)
		}
	}
}

// bulk sends n bytes from each end at once, reading with random stalls.
type bulk struct {
	left int
	rnd  *rand.ChaCha8
	sent hash.Hash
	got  hash.Hash
	fin  bool
	buf  []byte // of which part is not sent yet
	end  bool
}

func TestBulkArrivesWholeBothWaysAtOnce(t *testing.T) {
	for name, buf := range map[string]int{"the kernel's buffers": 0, "tiny buffers": 4096} {
		both(t, func(t *testing.T, splice bool) {
			size := 32 << 20
			if buf > 0 {
				size = 4 << 20
			}
			t.Run(name, func(t *testing.T) { sendBulk(t, newRig(t, splice, buf), size) })
		})
	}
}

func sendBulk(t *testing.T, r *rig, size int) {
	r.relay.Start(Client, nil)
	var ways [2]bulk
	for s := range ways {
		ways[s] = bulk{left: size, rnd: rand.NewChaCha8([32]byte{byte(s)}), sent: sha256.New(), got: sha256.New()}
	}
	stall := rand.New(rand.NewPCG(1, 1))
	in := make([]byte, 128<<10)
	worst := 0
	r.until("all bytes", func() bool {
		for range 200 {
			for s := range ways {
				w := &ways[s]
				r.push(Side(s), w)
				if w.end || stall.IntN(4) == 0 {
					continue
				}
				n, err := unix.Read(r.outer[Side(s).Other()], in)
				if n > 0 {
					w.got.Write(in[:n])
				}
				w.end = n == 0 && err == nil
			}
			r.loop.Step()
			worst = max(worst, r.relay.Held())
		}
		return ways[Client].end && ways[Server].end
	})
	for s := range ways {
		if !bytes.Equal(ways[s].sent.Sum(nil), ways[s].got.Sum(nil)) {
			t.Errorf("what side %d sent did not arrive as it was", s)
		}
		if r.watch.passed[s] != size || r.watch.wrote[Side(s).Other()] != size {
			t.Errorf("side %d: counted %d in, %d out of %d", s, r.watch.passed[s], r.watch.wrote[Side(s).Other()], size)
		}
	}
	if limit := 2 * 256 << 10; worst > limit {
		t.Errorf("held %d bytes, more than %d", worst, limit)
	}
}

func (r *rig) push(s Side, w *bulk) {
	if len(w.buf) == 0 && w.left > 0 {
		w.buf = make([]byte, min(w.left, 64<<10))
		_, _ = w.rnd.Read(w.buf)
		w.sent.Write(w.buf)
		w.left -= len(w.buf)
	}
	if len(w.buf) > 0 {
		n, err := unix.Write(r.outer[s], w.buf)
		if err != nil && err != unix.EAGAIN {
			r.t.Fatal(err)
		}
		w.buf = w.buf[max(n, 0):]
		return
	}
	if !w.fin {
		w.fin = true
		r.shutdown(s)
	}
}

// TestABrokenPeerIsNotWaitedForWithoutEnd: what the other side does not
// acknowledge holds its RST back, but not for ever.
func TestABrokenPeerIsNotWaitedForWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false, 0)
		r.relay.Start(Client, nil)
		r.fill(Server) // the client does not read: its kernel takes no more
		for r.relay.Held() > 0 {
			// make room for what is held, so that only the kernel's queue is left
			_, _ = unix.Read(r.outer[Client], make([]byte, 64<<10))
			r.loop.Step()
		}
		r.reset(Server)
		eventually(t, "the RST", func() bool { r.loop.Step(); return r.relay.lingering })
		if r.relay.Close(); r.watch.finished != 0 {
			t.Fatal("a FIN hides that the stream is cut")
		}
		var after time.Duration
		for ; r.watch.finished == 0 && after < time.Minute; after += 100 * time.Millisecond {
			time.Sleep(100 * time.Millisecond)
			r.loop.Step()
		}
		if after < lingerMost || after > lingerMost+time.Second {
			t.Errorf("waited %s for acknowledgements, want %s", after, lingerMost)
		}
		if r.watch.err != unix.ECONNRESET || r.watch.from != Server {
			t.Errorf("finished with %v by side %d", r.watch.err, r.watch.from)
		}
		r.relay.Expired() // late: nothing
	})
}

func TestAClientThatIsGoneTooEndsTheWaitForIt(t *testing.T) {
	r := newRig(t, false, 0)
	r.relay.Start(Client, nil)
	r.fill(Server)
	for r.relay.Held() > 0 {
		_, _ = unix.Read(r.outer[Client], make([]byte, 64<<10))
		r.loop.Step()
	}
	r.reset(Server)
	r.until("the RST", func() bool { return r.relay.lingering })
	r.reset(Client)
	r.until("the end", func() bool { return r.watch.finished == 1 })
	if r.watch.from != Server {
		t.Errorf("broken by side %d, but the server was first", r.watch.from)
	}
}
