package forward

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// become changes what over has said.
func (r *rig) become(endpoints ...netip.AddrPort) {
	m := exchange.Members{Name: "shop/cart:80"}
	for _, a := range endpoints {
		m.Endpoints = append(m.Endpoints, exchange.Endpoint{Addr: a})
	}
	r.route.Up.Update(exchange.Parent{Backends: []exchange.Members{m}})
}

func TestAnOpaqueConnectionWaitsForAnEndpoint(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.over()
		r.route.Kind = protocol.Opaque
		c := r.dial()
		r.send(c, "opaque")
		r.sleep(2 * time.Second)
		r.quiet(c)
		if got := r.flow().describe().State; got != "connecting" {
			t.Errorf("/connections says %q", got)
		}
		r.become(r.target)
		r.sleep(100 * time.Millisecond)
		s := r.server()
		r.gets(s, "opaque")
		r.send(s, "yes")
		r.gets(c, "yes")
		r.hangUp(c)
		r.hangUp(s)
		r.gone()
	})
}

func TestBytesOfDetectionWaitForAnEndpoint(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.over()
		c := r.dial()
		r.send(c, "\x00\x01 neither HTTP nor TLS")
		r.sleep(time.Second)
		r.send(c, ", and more")
		r.become(r.target)
		r.sleep(100 * time.Millisecond)
		s := r.server()
		if got := r.receive(s, "more"); got != "\x00\x01 neither HTTP nor TLS, and more" {
			t.Errorf("the endpoint got %q", got)
		}
	})
}

func TestAConnectionToADestinationWithoutEndpointsIsClosedInTime(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.over()
		r.route.Kind = protocol.Opaque
		c := r.dial()
		r.send(c, "opaque")
		r.sleep(2900 * time.Millisecond)
		r.quiet(c)
		r.sleep(200 * time.Millisecond)
		r.ends(c, unix.ECONNRESET)
		r.gone()
		late := r.connect(r.at) // it has been waited for
		r.ends(late, unix.ECONNRESET)
		r.gone()
		r.counted([]string{"meshctl_refused_total", "outbound_tcp_errors_total"},
			`meshctl_refused_total{reason="no_endpoints"} 2`, `outbound_tcp_errors_total{error="failfast"} 2`)

		r.become(r.target) // and it is reached at once
		c = r.dial()
		r.send(c, "opaque")
		s := r.server()
		r.gets(s, "opaque")
		r.become()
		c = r.dial() // a new wait
		r.sleep(time.Second)
		r.quiet(c)
	})
}

func TestAServerThatSpeaksFirstIsFoundOnceItHasAnEndpoint(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.over()
		c := r.dial()
		r.sleep(4 * time.Second) // all the time of detection is there
		r.quiet(c)
		r.become(r.target)
		r.sleep(100 * time.Millisecond)
		s := r.server()
		r.send(s, "220 ready\r\n")
		r.gets(c, "220 ready\r\n")
	})
}

func TestARequestToADestinationWithoutEndpointsWaitsForOne(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		r.over()
		c := r.dial()
		r.send(c, askAgain)
		r.sleep(2 * time.Second)
		r.quiet(c)
		r.become(r.target)
		s := r.server()
		r.receive(s, "\r\n\r\n")
		r.send(s, answerOK)
		r.receive(c, "ok")
		r.become()
		c = r.dial()
		r.send(c, askAgain)
		r.sleep(3100 * time.Millisecond)
		if got := r.receive(c, "\r\n\r\n"); !strings.HasPrefix(got, "HTTP/1.1 504 ") || !strings.Contains(got, "no endpoint is ready") {
			t.Errorf("the client got %q", got)
		}
	})
}
