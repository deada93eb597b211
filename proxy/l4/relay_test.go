package l4

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
)

// both runs a test with every byte seen, and with splicing allowed.
func both(t *testing.T, f func(t *testing.T, splice bool)) {
	for _, splice := range []bool{false, true} {
		t.Run(fmt.Sprintf("splice=%v", splice), func(t *testing.T) { f(t, splice) })
	}
}

// sides runs a test for each side in the active part.
func sides(t *testing.T, f func(t *testing.T, s Side)) {
	t.Run("client", func(t *testing.T) { f(t, Client) })
	t.Run("server", func(t *testing.T) { f(t, Server) })
}

func TestBytesPassBothWaysAndAreCounted(t *testing.T) {
	both(t, func(t *testing.T, splice bool) {
		r := newRig(t, splice, 0)
		r.relay.Start(Client, []byte("head "))
		r.write(Client, "question")
		r.gets(Server, "head question")
		r.write(Server, "answer")
		r.gets(Client, "answer")
		if d := cmp.Diff([2][]byte{[]byte("question"), []byte("answer")}, r.watch.seen); d != "" {
			t.Error(d) // of the head its owner knows already
		}
		if d := cmp.Diff([2]int{Client: len("answer"), Server: len("head question")}, r.watch.wrote); d != "" {
			t.Error(d)
		}
		if r.relay.Held() != 0 || r.relay.HalfClosed() {
			t.Errorf("idle, but it holds %d bytes, half closed %v", r.relay.Held(), r.relay.HalfClosed())
		}
	})
}

func TestAFINPassesOnWhileTheOtherDirectionFlowsOn(t *testing.T) {
	sides(t, func(t *testing.T, s Side) {
		r := newRig(t, true, 0)
		r.relay.Start(Client, nil)
		r.write(s, "last words")
		r.shutdown(s)
		got, end := r.read(s.Other())
		if string(got) != "last words" || end != nil {
			t.Fatalf("got %q, %v", got, end)
		}
		if !r.relay.HalfClosed() || r.watch.ended[s] != 1 || r.watch.finished != 0 {
			t.Errorf("half closed %v, ended %v, finished %d", r.relay.HalfClosed(), r.watch.ended, r.watch.finished)
		}
		for i := range 3 {
			word := fmt.Sprintf("still here %d", i)
			r.write(s.Other(), word)
			r.gets(s, word)
		}
		r.close(s.Other())
		if got, end := r.read(s); len(got) != 0 || end != nil {
			t.Errorf("got %q, %v", got, end)
		}
		r.until("the relay's end", func() bool { return r.watch.finished == 1 })
		if r.watch.err != 0 || r.relay.HalfClosed() || r.sock[Client].Open() || r.sock[Server].Open() {
			t.Errorf("after two FINs: %v, half closed %v", r.watch.err, r.relay.HalfClosed())
		}
	})
}

func TestARSTPassesOnAsARST(t *testing.T) {
	both(t, func(t *testing.T, splice bool) {
		sides(t, func(t *testing.T, s Side) {
			r := newRig(t, splice, 0)
			r.relay.Start(Client, nil)
			r.write(s, "cut o")
			r.gets(s.Other(), "cut o")
			r.reset(s)
			if _, end := r.read(s.Other()); end != unix.ECONNRESET {
				t.Errorf("the other side sees %v", end)
			}
			if r.watch.finished != 1 || r.watch.err != unix.ECONNRESET || r.watch.from != s {
				t.Errorf("finished %d times, by side %d, %v", r.watch.finished, r.watch.from, r.watch.err)
			}
		})
	})
}

// TestARSTPassesOnWhenAWriteMeetsIt: the relay holds bytes for a side that does
// not read; its RST is then seen by the write, which takes the error of the
// socket with it: reading after that shows a mere end.
func TestARSTPassesOnWhenAWriteMeetsIt(t *testing.T) {
	both(t, func(t *testing.T, splice bool) {
		sides(t, func(t *testing.T, s Side) {
			r := newRig(t, splice, 0)
			r.relay.Start(Client, nil)
			r.fill(s.Other())
			if r.relay.Held() == 0 {
				t.Fatal("nothing is held")
			}
			r.reset(s)
			if _, end := r.read(s.Other()); end != unix.ECONNRESET {
				t.Errorf("the other side sees %v", end)
			}
			if r.watch.finished != 1 || r.watch.err != unix.ECONNRESET || r.watch.from != s {
				t.Errorf("finished %d times, by side %d, %v", r.watch.finished, r.watch.from, r.watch.err)
			}
		})
	})
}

func TestARSTAfterAFINStillPassesOn(t *testing.T) {
	sides(t, func(t *testing.T, s Side) {
		r := newRig(t, false, 0)
		r.relay.Start(Client, nil)
		r.shutdown(s)
		if _, end := r.read(s.Other()); end != nil {
			t.Fatal(end)
		}
		r.reset(s) // will hear no answer
		r.until("the relay's end", func() bool { return r.watch.finished == 1 })
		if r.watch.err != unix.ECONNRESET {
			t.Errorf("finished with %v", r.watch.err)
		}
		eventually(t, "the reset of the other side", func() bool {
			_, err := unix.Write(r.outer[s.Other()], []byte("answer"))
			return err == unix.ECONNRESET || err == unix.EPIPE
		})
	})
}

// TestAnAnswerBeforeARSTIsDelivered: a server that answers early and closes while
// the client is still sending makes its kernel send a RST (RFC 9112, 9.6). The
// answer is there all the same.
func TestAnAnswerBeforeARSTIsDelivered(t *testing.T) {
	for _, size := range []int{1, 1000, 60_000, 200_000} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			r := newRig(t, false, 0)
			r.relay.Start(Client, nil)
			r.write(Client, strings.Repeat("upload ", 1000))
			answer := strings.Repeat("a", size)
			var sent int
			r.until("the server's kernel to have its answer acknowledged", func() bool {
				n, _ := unix.Write(r.outer[Server], []byte(answer[sent:]))
				sent += max(n, 0)
				queued, err := unix.IoctlGetInt(r.outer[Server], unix.TIOCOUTQ)
				return sent == size && err == nil && queued == 0
			})
			r.close(Server) // with the upload unread
			got, end := r.read(Client)
			if string(got) != answer {
				t.Errorf("got %d of %d bytes", len(got), size)
			}
			if end != unix.ECONNRESET {
				t.Errorf("and then %v", end)
			}
		})
	}
}

// TestAnAnswerOfAServerThatEndsAndThenRefusesMoreIsWhole: the server has sent all
// and its FIN, closed, and answers what still comes with a RST.
func TestAnAnswerOfAServerThatEndsAndThenRefusesMoreIsWhole(t *testing.T) {
	for name, late := range map[string]bool{"FIN seen before": false, "FIN not seen yet": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, false, 0)
			r.relay.Start(Client, nil)
			r.write(Client, "question")
			r.gets(Server, "question")
			another := func() {
				if _, err := unix.Write(r.outer[Client], []byte("and another")); err != nil {
					t.Fatal(err)
				}
			}
			if late {
				another() // the relay sees it before the answer, and its write meets the RST
			}
			if _, err := unix.Write(r.outer[Server], []byte("the answer")); err != nil {
				t.Fatal(err)
			}
			r.close(Server)
			if !late {
				r.until("the FIN", func() bool { return r.watch.ended[Server] == 1 })
				another()
			}
			// Straight to the server's kernel, past the relay: its RST comes before
			// the relay looks again.
			if _, e := r.sock[Server].Write([]byte("one more")); e != 0 {
				t.Fatal(e)
			}
			got, end := r.read(Client)
			if string(got) != "the answer" || end != nil {
				t.Errorf("got %q, then %v; want the answer and its end", got, end)
			}
			r.until("the relay's end", func() bool { return r.watch.finished == 1 })
			if r.watch.err != unix.ECONNRESET || r.watch.from != Server {
				t.Errorf("finished with %v by side %d", r.watch.err, r.watch.from)
			}
		})
	}
}

func TestASlowReaderHoldsTheWriterAndLittleMemory(t *testing.T) {
	both(t, func(t *testing.T, splice bool) {
		sides(t, func(t *testing.T, s Side) {
			r := newRig(t, splice, 0)
			r.relay.Start(Client, nil)
			sent := r.fill(s)
			limit := conn.ScratchSize
			if splice {
				limit = 256 << 10 // a pipe's
			}
			if held := r.relay.Held(); held == 0 || held > limit {
				t.Errorf("%d bytes held, want 1 to %d", held, limit)
			}
			r.shutdown(s) // what is held outlives the FIN
			got, end := r.read(s.Other())
			if len(got) != sent || end != nil {
				t.Errorf("%d of %d bytes, %v", len(got), sent, end)
			}
			if r.relay.Held() != 0 {
				t.Errorf("%d bytes held after all were read", r.relay.Held())
			}
		})
	})
}

func TestAHeadThatTheServerDoesNotTakeIsHeld(t *testing.T) {
	r := newRig(t, false, 4096)
	head := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
	mine := bytes.Clone(head)
	r.relay.Start(Client, mine)
	clear(mine) // the owner may use it again
	if r.relay.Held() == 0 {
		t.Fatal("nothing is held")
	}
	r.shutdown(Client)
	if got, end := r.read(Server); !bytes.Equal(got, head) || end != nil {
		t.Errorf("got %d bytes, %v", len(got), end)
	}
}

func TestBulkIsSplicedAndSmallExchangesAreNot(t *testing.T) {
	r := newRig(t, true, 0)
	r.relay.Start(Client, nil)
	for range 10 {
		r.write(Client, "small")
		r.gets(Server, "small")
	}
	if r.watch.unseen != [2]int{} {
		t.Errorf("small exchanges were spliced: %v", r.watch.unseen)
	}
	sent := r.fill(Client)
	r.shutdown(Client)
	if got, _ := r.read(Server); len(got) != sent {
		t.Errorf("%d of %d bytes", len(got), sent)
	}
	if r.watch.unseen[Client] < sent/4 {
		t.Errorf("only %d of %d bytes were spliced", r.watch.unseen[Client], sent)
	}
	if r.watch.passed[Client] != sent+50 || r.watch.wrote[Server] != sent+50 {
		t.Errorf("counted %d in and %d out of %d", r.watch.passed[Client], r.watch.wrote[Server], sent+50)
	}
}

func TestAnIdleRelayHoldsTwoDescriptorsAndNoPipe(t *testing.T) {
	r, sent := stuck(t)
	before := openFDs(t)
	if held := r.relay.Held(); held == 0 || held > 256<<10 {
		t.Errorf("%d bytes held", held)
	}
	var got int
	buf := make([]byte, 64<<10)
	r.until("all bytes", func() bool {
		n, _ := unix.Read(r.outer[Server], buf)
		got += max(n, 0)
		return got == sent
	})
	r.loop.Step()
	for s := range r.relay.dir {
		if d := &r.relay.dir[s]; d.pipe != nil || d.pending != nil {
			t.Errorf("side %d holds a pipe (%v) or bytes (%d) while idle", s, d.pipe != nil, len(d.pending))
		}
	}
	if now := openFDs(t); now > before {
		t.Errorf("%d descriptors, %d while it was busy", now, before)
	}
}

func TestBytesInAPipeEndWithTheirConnection(t *testing.T) {
	t.Run("reset by the server", func(t *testing.T) {
		r, _ := stuck(t)
		r.reset(Server)
		if _, end := r.read(Client); end != unix.ECONNRESET {
			t.Errorf("the client sees %v", end)
		}
		if r.watch.err != unix.ECONNRESET || r.watch.from != Server || r.relay.Held() != 0 {
			t.Errorf("finished with %v by side %d, holds %d", r.watch.err, r.watch.from, r.relay.Held())
		}
	})
	t.Run("aborted", func(t *testing.T) {
		r, _ := stuck(t)
		before := openFDs(t)
		r.relay.Abort(Client, unix.ETIMEDOUT)
		if now := openFDs(t); now > before-2 {
			t.Errorf("%d descriptors, %d before: sockets or pipe are left", now, before)
		}
		if r.relay.Held() != 0 {
			t.Errorf("%d bytes held", r.relay.Held())
		}
	})
}

func TestASpliceWithoutPipesCopies(t *testing.T) {
	r := newRig(t, true, 0)
	var taken []*conn.Pipe
	for p := r.loop.TakePipe(); p != nil; p = r.loop.TakePipe() {
		taken = append(taken, p)
	}
	r.relay.dir[Client].full = bulkReads // as after a while
	r.relay.Start(Client, nil)
	sent := r.fill(Client)
	if r.watch.unseen[Client] != 0 {
		t.Error("spliced without a pipe")
	}
	for _, p := range taken {
		r.loop.GivePipe(p)
	}
	r.shutdown(Client)
	if got, _ := r.read(Server); len(got) != sent {
		t.Errorf("%d of %d bytes", len(got), sent)
	}
}

func TestSingleBytesArriveOneByOne(t *testing.T) {
	r := newRig(t, true, 0)
	r.relay.Start(Client, nil)
	for i := range 300 {
		s := Side(i & 1)
		r.write(s, string(rune('a'+i%26)))
		r.gets(s.Other(), string(rune('a'+i%26)))
	}
}

func TestAbortResetsBothSides(t *testing.T) {
	r := newRig(t, false, 0)
	r.relay.Start(Client, nil)
	r.fill(Client)
	r.relay.Abort(Client, unix.ETIMEDOUT)
	r.relay.Abort(Server, unix.EIO) // once is enough
	r.relay.Close()
	for s := range r.outer {
		if _, end := r.read(Side(s)); end != unix.ECONNRESET {
			t.Errorf("side %d sees %v", s, end)
		}
	}
	if r.watch.finished != 1 || r.watch.err != unix.ETIMEDOUT || r.relay.Held() != 0 {
		t.Errorf("finished %d times with %v, holds %d", r.watch.finished, r.watch.err, r.relay.Held())
	}
}

func TestCloseSendsAFINToBothSides(t *testing.T) {
	r := newRig(t, false, 0)
	r.relay.Start(Client, nil)
	r.write(Server, "bye")
	r.relay.Close()
	if got, end := r.read(Client); string(got) != "bye" || end != nil {
		t.Errorf("the client got %q, %v", got, end)
	}
	if _, end := r.read(Server); end != nil {
		t.Errorf("the server sees %v", end)
	}
	if r.watch.finished != 1 || r.watch.err != 0 {
		t.Errorf("finished %d times with %v", r.watch.finished, r.watch.err)
	}
}

// TestUrgentBytesStayInTheStream: TCP's urgent pointer makes a read end early
// (telnet, FTP's ABOR); what follows must not wait for the next byte, and the
// urgent byte itself belongs to the stream (RFC 6093, 5).
func TestUrgentBytesStayInTheStream(t *testing.T) {
	sides(t, func(t *testing.T, s Side) {
		r := newRig(t, false, 0)
		r.relay.Start(Client, nil)
		r.loop.Step()
		send := func(b string, flags int) {
			if err := unix.Sendto(r.outer[s], []byte(b), flags, nil); err != nil {
				t.Fatal(err)
			}
		}
		send("before", 0)
		send("!", unix.MSG_OOB)
		send("after", 0)
		r.gets(s.Other(), "before!after")
	})
}

func openFDs(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
