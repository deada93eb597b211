package policy

import (
	"fmt"
	"net/netip"
)

// Default is who may call a port that no Server selects, or what a Server adds to
// its authorizations. The zero value means "not said".
type Default uint8

// Linkerd's default policies.
const (
	AllUnauthenticated     Default = iota + 1 // everybody
	AllAuthenticated                          // clients with a mesh identity
	ClusterUnauthenticated                    // clients in the cluster's networks
	ClusterAuthenticated                      // both
	Deny                                      // nobody
	Audit                                     // everybody, and what nothing else allows is told
)

// defaults are in the order of the constants.
var defaults = [...]string{"", "all-unauthenticated", "all-authenticated", "cluster-unauthenticated", "cluster-authenticated", "deny", "audit"}

// String returns Linkerd's word, empty if nothing is said.
func (d Default) String() string {
	if int(d) < len(defaults) {
		return defaults[d]
	}
	return "unknown"
}

// ParseDefault reads one of Linkerd's words.
func ParseDefault(text string) (Default, error) {
	for i, word := range defaults {
		if i > 0 && word == text {
			return Default(i), nil
		}
	}
	return 0, fmt.Errorf("%q is no policy: want all-unauthenticated, all-authenticated, cluster-unauthenticated, cluster-authenticated, deny or audit", text)
}

// DefaultClusterNetworks are Linkerd's networks of a cluster: the private ones.
func DefaultClusterNetworks() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("fd00::/8"),
	}
}

// grants are what d lets in: nothing for Deny, for what is not said, and for what
// is not known.
func (d Default) grants(cluster []netip.Prefix) []*grant {
	g := &grant{ref: Ref{Kind: "default", Name: d.String()}}
	var nets []Network
	for _, p := range cluster {
		nets = append(nets, Network{CIDR: p})
	}
	switch d {
	case AllUnauthenticated:
	case Audit:
		g.audit = true
	case AllAuthenticated:
		g.who = []identities{{any: true}}
	case ClusterUnauthenticated:
		g.from = [][]Network{nets}
	case ClusterAuthenticated:
		g.who, g.from = []identities{{any: true}}, [][]Network{nets}
	default:
		return nil
	}
	return []*grant{g}
}
