package redirect

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/rules"
)

// While rules with 1000 ports are written again and again, no new connection
// may go around the proxy: the change from one plan to the next is one step.
func TestWritingAgainLeaksNoConnection(t *testing.T) {
	everyBackend(t, func(t *testing.T, pair *lab.Net, b Backend) {
		plans := [2]rules.Plan{thousand(t, 20001), thousand(t, 20002)}
		mustApply(t, b, plans[0], true)
		at := []netip.AddrPort{
			{}, onPort(lab.PeerV4, 8080), onPort(lab.PeerV6, 8080),
		}[1:]
		for _, to := range at {
			serveCheaply(t, pair.Peer, to, 'd')
		}
		serveCheaply(t, pair.Pod, netip.MustParseAddrPort("127.0.0.1:4140"), 'p')
		serveCheaply(t, pair.Pod, netip.MustParseAddrPort("[::1]:4140"), 'p')
		var leaked, proxied, failed atomic.Int64
		stop := make(chan struct{})
		var clients sync.WaitGroup
		for _, to := range at {
			clients.Add(1)
			go func() {
				defer clients.Done()
				connectUntil(pair.Pod, to, stop, &leaked, &proxied, &failed)
			}()
		}
		began, writes := time.Now(), 0
		for time.Since(began) < 1500*time.Millisecond {
			writes++
			if _, err := b.Apply(t.Context(), plans[writes%2]); err != nil {
				t.Error(err)
				break
			}
		}
		close(stop)
		clients.Wait()
		t.Logf("%d writes, %d connections by the proxy, %d leaked, %d failed", writes, proxied.Load(), leaked.Load(), failed.Load())
		if leaked.Load() > 0 || failed.Load() > 0 || proxied.Load() < 500 {
			t.Error("connections leaked or failed, or were too few to tell")
		}
	})
}

// thousand skips every fourth port from first on, none of which a client gets.
func thousand(t testing.TB, first int) rules.Plan {
	return plan(t, func(c *rules.Config) {
		list := make([]uint16, 1000)
		for i := range list {
			list[i] = uint16(first + 4*i)
		}
		c.SkipOutboundPorts = ports.Of(list...)
	})
}

func connectUntil(pod *lab.Namespace, to netip.AddrPort, stop <-chan struct{}, leaked, proxied, failed *atomic.Int64) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		conn, err := pod.Dial(app, noAddr, to, 2*time.Second)
		if err != nil {
			failed.Add(1)
			continue
		}
		conn.SetDeadline(time.Now().Add(2 * time.Second))
		conn.SetLinger(0) // leaves no TIME_WAIT that would use the ports up
		b := make([]byte, 1)
		switch _, err := io.ReadFull(conn, b); {
		case err != nil:
			failed.Add(1)
		case b[0] == 'd':
			leaked.Add(1)
		default:
			proxied.Add(1)
		}
		conn.Close()
	}
}

// serveCheaply answers every connection with one byte.
func serveCheaply(t testing.TB, ns *lab.Namespace, at netip.AddrPort, says byte) {
	l := ns.Listen(t, at)
	done := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-done })
	go func() {
		defer close(done)
		answerAll(l, says)
	}()
}

func answerAll(l net.Listener, says byte) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		conn.Write([]byte{says})
		conn.Close()
	}
}
