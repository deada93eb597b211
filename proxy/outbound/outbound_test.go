package outbound

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/forward"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/protocol"
)

func router() *Router {
	return New(&policy.Policy{Opaque: ports.Of(3306), Own: ports.Of(4140, 4143, 4191), Local: netip.Addr.IsLoopback})
}

func TestAConnectionGoesWhereItWasSent(t *testing.T) {
	for dst, kind := range map[string]protocol.Kind{
		"10.0.0.7:3306":      protocol.Opaque,
		"10.0.0.7:80":        protocol.Unknown,
		"[2001:db8::7]:8080": protocol.Unknown,
		"10.0.0.7:4143":      protocol.Unknown, // another machine's proxy
		"127.0.0.1:80":       protocol.Unknown,
	} {
		to := netip.MustParseAddrPort(dst)
		got, err := router().Route(netip.MustParseAddrPort("10.0.0.1:50000"), to)
		if err != nil {
			t.Errorf("%s: %v", dst, err)
		}
		want := forward.Route{Target: to, Kind: kind, Early: true} // one endpoint: it may be dialed early
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); d != "" {
			t.Errorf("%s: %s", dst, d)
		}
	}
}

func TestWhereNoEndpointIsReadyOneIsWaitedFor(t *testing.T) {
	r := router()
	r.Lanes = lanes(t)
	r.Targets = fixed{discovery.View{Kind: discovery.ServicePort}}
	got, err := r.Route(netip.MustParseAddrPort("10.0.0.1:50000"), netip.MustParseAddrPort("10.96.0.1:80"))
	if err != nil || got.Up == nil || !got.Mediate {
		t.Errorf("%+v, %v", got, err)
	}
	r.Targets = fixed{discovery.View{Kind: discovery.ServicePort, Refused: discovery.NoSuchPort}}
	_, err = r.Route(netip.MustParseAddrPort("10.0.0.1:50000"), netip.MustParseAddrPort("10.96.0.1:81"))
	if r, ok := errors.AsType[*forward.Refusal](err); !ok || r.Reason != "no_such_port" {
		t.Errorf("a port that the Service does not have: %v", err)
	}
}

// fixed says the same of every destination.
type fixed struct{ view discovery.View }

func (f fixed) Resolve(dst netip.AddrPort) *discovery.Target { return discovery.Fixed(dst, f.view) }

func TestADestinationThatIsAListenerOfThisProxyIsRefused(t *testing.T) {
	for _, dst := range []string{"127.0.0.1:4140", "127.0.0.1:4143", "127.0.0.1:4191", "[::1]:4143"} {
		_, err := router().Route(netip.MustParseAddrPort("10.0.0.1:50000"), netip.MustParseAddrPort(dst))
		if r, ok := errors.AsType[*forward.Refusal](err); !ok || r.Reason != "own_listener" {
			t.Errorf("%s: %v", dst, err)
		}
	}
}
