package forward

import (
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// known ends the wait that Route.Pending began.
func (r *rig) known(kind protocol.Kind) {
	r.route.Pending, r.route.Kind = false, kind
	r.f.Resolve()
	r.settle()
}

func TestWhatIsNotKnownYetIsWaitedForBeforeAnyByteIsLookedAt(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.route.Pending = true
		c := r.dial()
		r.send(c, "GET / HTTP/1.1\r\n") // it would be taken for HTTP
		r.sleep(time.Second)
		r.noServer()
		r.f.Resolve() // a change of something else
		r.quiet(c)
		if got := r.flow().describe().State; got != "resolving" {
			t.Errorf("/connections says %q", got)
		}
		r.route.View = &discovery.View{Kind: discovery.ServicePort, Object: discovery.Object{Kind: "Service", Namespace: "shop", Name: "db"}, Port: 80}
		r.known(protocol.Opaque)
		s := r.server()
		r.is(protocol.Opaque, detect.ReasonDeclared)
		r.gets(s, "GET / HTTP/1.1\r\n")
		r.send(s, "yes")
		r.gets(c, "yes")
		if got := r.flow().describe().Service; !strings.Contains(got, "shop/db") {
			t.Errorf("it counts for %q", got)
		}
		r.hangUp(c)
		r.hangUp(s)
		r.gone()
		if n := r.f.resolving.Load(); n != 0 {
			t.Errorf("%d wait", n)
		}
	})
}

func TestWhatTurnsOutToBeUndeclaredIsDetected(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.route.Pending = true
		c := r.dial()
		r.send(c, askAgain)
		r.sleep(time.Second)
		r.known(protocol.Unknown)
		r.is(protocol.HTTP1, detect.ReasonBytes)
		r.gets(r.server(), askAgain)
	})
}

func TestAClientThatIsSilentWhileItIsWaitedIsReadLater(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.route.Pending = true
		c := r.dial()
		r.known(protocol.Opaque)
		s := r.server()
		r.send(c, "later")
		r.gets(s, "later")
		r.fin(c)
		r.ends(s, nil)
	})
}

func TestARefusalThatIsLearnedLateIsOneAtOnce(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.route.Pending = true
		c := r.dial()
		r.send(c, "anything")
		r.refusal = &Refusal{Reason: "no_such_port"}
		r.known(protocol.Unknown)
		r.ends(c, unix.ECONNRESET)
		r.gone()
		r.noServer()
		r.counted([]string{"meshctl_refused_total"}, `meshctl_refused_total{reason="no_such_port"} 1`)
	})
}

func TestAnAnswerThatNeverComesIsNotWaitedForForever(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.route.Pending = true
		c := r.dial()
		r.send(c, askAgain)
		r.sleep(2900 * time.Millisecond)
		r.noServer()
		r.sleep(200 * time.Millisecond)
		r.gets(r.server(), askAgain)
		left := r.dial()
		r.rst(left) // who has gone is not waited for
		r.until("its end", func() bool { return r.f.Open() == 1 })
		if n := r.f.resolving.Load(); n != 0 {
			t.Errorf("%d wait", n)
		}
	})
}
