package policy

import (
	"net/netip"
	"testing"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/protocol"
)

func TestTheDefaultListIsLinkerds(t *testing.T) {
	if got, want := DefaultOpaque().String(), "25,587,3306,4444,5432,6379,9300,11211"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestAPortIsOpaqueIfDeclaredAndUnknownIfNot(t *testing.T) {
	p := &Policy{Opaque: ports.Of(25, 3306)}
	for port, want := range map[uint16]protocol.Kind{25: protocol.Opaque, 3306: protocol.Opaque, 3307: protocol.Unknown, 0: protocol.Unknown, 65535: protocol.Unknown} {
		if got := p.Kind(port); got != want {
			t.Errorf("port %d is %s, want %s", port, got, want)
		}
	}
	if got := (&Policy{}).Kind(25); got != protocol.Unknown {
		t.Errorf("with nothing declared port 25 is %s", got)
	}
}

func TestALoopIsAnOwnPortOnAnAddressOfThisMachine(t *testing.T) {
	p := &Policy{Own: ports.Of(4140, 4143), Local: func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.7") }}
	for to, want := range map[string]bool{
		"10.0.0.7:4143": true, "10.0.0.7:4140": true, "10.0.0.7:80": false, "10.0.0.8:4143": false, "10.0.0.8:80": false,
	} {
		if got := p.Loop(netip.MustParseAddrPort(to)); got != want {
			t.Errorf("Loop(%s) = %v", to, got)
		}
	}
}
