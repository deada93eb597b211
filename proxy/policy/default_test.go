package policy

import (
	"net/netip"
	"testing"

	"github.com/meshctl/meshctl/proxy/protocol"
)

const web = "web.shop.serviceaccount.identity.linkerd.cluster.local"

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// kinds of client that every policy must tell apart.
var (
	inside     = Client{Addr: addr("10.1.2.3")}
	insideV6   = Client{Addr: addr("fd00::9")}
	outside    = Client{Addr: addr("203.0.113.5")}
	meshInside = Client{Addr: addr("10.1.2.3"), Mesh: true, ID: web}
	meshOut    = Client{Addr: addr("203.0.113.5"), Mesh: true, ID: web}
	nameless   = Client{Addr: addr("10.1.2.3"), Mesh: true} // mesh TLS without a certificate
	claims     = Client{Addr: addr("10.1.2.3"), ID: web}    // an identity that no TLS has proved
	mapped     = Client{Addr: addr("::ffff:10.1.2.3")}
	mappedOut  = Client{Addr: addr("::ffff:203.0.113.5")}
	loopback   = Client{Addr: addr("127.0.0.1")}
	loopback6  = Client{Addr: addr("::1")}
	loopMapped = Client{Addr: addr("::ffff:127.0.0.9")}
	noAddress  = Client{}
)

func TestTheSixDefaultPoliciesAgainstEveryKindOfClient(t *testing.T) {
	clients := []struct {
		name string
		Client
	}{
		{"inside", inside}, {"insideV6", insideV6}, {"outside", outside}, {"meshInside", meshInside}, {"meshOut", meshOut}, {"nameless", nameless},
		{"claims", claims}, {"mapped", mapped}, {"mappedOut", mappedOut}, {"loopback", loopback}, {"loopback6", loopback6}, {"loopMapped", loopMapped}, {"noAddress", noAddress},
	}
	for _, tt := range []struct {
		policy  Default
		allowed string // one letter a client: y, n, or l for loopback's own authorization
		audit   bool
	}{
		{AllUnauthenticated, "yyyyyyyyylllY", false},
		{AllAuthenticated, "nnnyynnnnllln", false},
		{ClusterUnauthenticated, "yynynyyynllln", false},
		{ClusterAuthenticated, "nnnynnnnnllln", false},
		{Deny, "nnnnnnnnnllln", false},
		{Audit, "yyyyyyyyylllY", true},
	} {
		p := Compile(Config{Default: tt.policy}, Objects{}).Port(8080)
		if want := (Ref{Kind: "default", Name: tt.policy.String()}); p.Server != want {
			t.Errorf("%s: server %+v", tt.policy, p.Server)
		}
		for i, c := range clients {
			d := p.AuthorizeConnection(c.Client)
			want := tt.allowed[i]
			if d.Allowed != (want != 'n') {
				t.Errorf("%s: %s allowed: %v", tt.policy, c.name, d.Allowed)
			}
			if d.Allowed == (d.Reason != "") || d.Allowed == (d.Authz == Ref{}) {
				t.Errorf("%s: %s: %+v", tt.policy, c.name, d)
			}
			if byLoopback := d.Authz == localhost; byLoopback != (want == 'l') {
				t.Errorf("%s: %s is allowed by %s", tt.policy, c.name, d.Authz)
			}
			if d.Audit != (tt.audit && want != 'l') {
				t.Errorf("%s: %s audit: %v", tt.policy, c.name, d.Audit)
			}
			if r := p.AuthorizeRequest(c.Client, get("/")); r.Decision != d || r.NoRoute || r.Route != defaultRoute {
				t.Errorf("%s: %s: a request is decided differently: %+v", tt.policy, c.name, r)
			}
		}
		if p.HTTP() {
			t.Errorf("%s: requests are to be taken one by one for nothing", tt.policy)
		}
	}
}

func TestWithoutAWordEverybodyMayCall(t *testing.T) {
	tab := Compile(Config{}, Objects{})
	if tab.Default() != AllUnauthenticated || !tab.Port(1).AuthorizeConnection(outside).Allowed {
		t.Errorf("default %s", tab.Default())
	}
}

func TestDenySaysWhyAndIsOpaque(t *testing.T) {
	p := Compile(Config{Default: Deny}, Objects{}).Port(80)
	if d := p.AuthorizeConnection(meshInside); d.Reason != NoAuthorization {
		t.Errorf("%+v", d)
	}
	if p.Kind(protocol.Unknown) != protocol.Opaque {
		t.Errorf("kind %s", p.Kind(protocol.Unknown))
	}
	p = Compile(Config{Default: AllAuthenticated}, Objects{}).Port(80)
	if d := p.AuthorizeConnection(nameless); d.Reason != NoIdentity {
		t.Errorf("%+v", d)
	}
	p = Compile(Config{Default: ClusterAuthenticated}, Objects{}).Port(80)
	if d := p.AuthorizeConnection(meshOut); d.Reason != NotAuthorized {
		t.Errorf("%+v", d)
	}
}

func TestClusterNetworksAreThoseThatWereSaid(t *testing.T) {
	p := Compile(Config{Default: ClusterUnauthenticated, ClusterNetworks: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}, Objects{}).Port(80)
	if !p.AuthorizeConnection(outside).Allowed || !p.AuthorizeConnection(mappedOut).Allowed || p.AuthorizeConnection(inside).Allowed {
		t.Error("the networks do not count")
	}
	p = Compile(Config{Default: ClusterUnauthenticated, ClusterNetworks: []netip.Prefix{}}, Objects{}).Port(80)
	if p.AuthorizeConnection(inside).Allowed {
		t.Error("no network is not the default list")
	}
}

func TestDefaultPoliciesAreReadAndWritten(t *testing.T) {
	for d := AllUnauthenticated; d <= Audit; d++ {
		if got, err := ParseDefault(d.String()); err != nil || got != d {
			t.Errorf("%s: %v %v", d, got, err)
		}
	}
	for _, text := range []string{"", "allow", "Deny", " deny", "all-unauthenticated,deny"} {
		if d, err := ParseDefault(text); err == nil {
			t.Errorf("%q is read as %s", text, d)
		}
	}
}

func TestActionsOfDetectionByPort(t *testing.T) {
	for _, tt := range []struct {
		text, again string
		close, open []uint16
	}{
		{"open", "open", nil, []uint16{1, 80, 65535}},
		{"close", "close", []uint16{1, 80, 65535}, nil},
		{"close=8080,9000-9100", "close=8080,9000-9100", []uint16{8080, 9000, 9050, 9100}, []uint16{80, 8999, 9101}},
		{"open=25,3306", "open=25,3306", []uint16{80, 26}, []uint16{25, 3306}},
	} {
		a, err := ParseActions(tt.text)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range tt.close {
			if a.Of(p) != Close {
				t.Errorf("%s: port %d is open", tt.text, p)
			}
		}
		for _, p := range tt.open {
			if a.Of(p) != Open {
				t.Errorf("%s: port %d is closed", tt.text, p)
			}
		}
		if a.String() != tt.again {
			t.Errorf("%s is written %s", tt.text, a)
		}
	}
	if (Actions{}).Of(80) != Open || (Actions{}).String() != "open" {
		t.Error("the zero value is not open")
	}
	for _, text := range []string{"", "shut", "close=", "close=0", "close=80=90", "close=x", "=80", "close,open"} {
		if a, err := ParseActions(text); err == nil {
			t.Errorf("%q is read as %s", text, a)
		}
	}
}

func TestAPortOutsideAllServersHasTheActionOfItsNumber(t *testing.T) {
	actions, err := ParseActions("close=8080")
	if err != nil {
		t.Fatal(err)
	}
	tab := Compile(Config{Actions: actions}, Objects{})
	if !tab.Port(8080).StrictDetect || tab.Port(8081).StrictDetect {
		t.Error("the list of ports does not count")
	}
}
