package policy

import (
	"net/netip"
	"slices"
	"strings"
)

// Network is a subnet with holes.
type Network struct {
	CIDR   netip.Prefix
	Except []netip.Prefix
}

// holds reports whether a, unwrapped, is in n.
func (n *Network) holds(a netip.Addr) bool {
	if !n.CIDR.Contains(a) {
		return false
	}
	for _, hole := range n.Except {
		if hole.Contains(a) {
			return false
		}
	}
	return true
}

// identities is a set of names of clients. The zero value has none.
type identities struct {
	any      bool
	exact    map[string]struct{}
	suffixes []string // ".ns.serviceaccount.identity.linkerd.cluster.local"
	accounts []string // "spiffe://cluster.local/ns/shop/sa/": all ServiceAccounts of a namespace
}

// add takes "*", "*.suffix" or a name.
func (i *identities) add(text string) {
	switch suffix, wild := strings.CutPrefix(text, "*"); {
	case text == "*":
		i.any = true
	case wild && strings.HasPrefix(suffix, "."):
		i.suffixes = append(i.suffixes, suffix)
	default:
		if i.exact == nil {
			i.exact = map[string]struct{}{}
		}
		i.exact[text] = struct{}{}
	}
}

// ValidIdentity is true of "*", "*.suffix" and a name: a star stands for whole labels
// at the front, and nowhere else.
func ValidIdentity(text string) bool {
	rest := strings.TrimPrefix(text, "*.")
	return text == "*" || rest != "" && rest[0] != '.' && !strings.ContainsAny(rest, "* \t\r\n")
}

// has reports whether an identity that was verified is in the set. A suffix is of
// DNS names only: the path of a SPIFFE URI is the choice of whoever runs its
// trust domain, and may end in anything.
func (i *identities) has(id string) bool {
	if i.any {
		return true
	}
	if _, ok := i.exact[id]; ok {
		return true
	}
	if strings.Contains(id, "/") {
		for _, a := range i.accounts {
			if name, ok := strings.CutPrefix(id, a); ok && name != "" && !strings.Contains(name, "/") {
				return true
			}
		}
		return false
	}
	for _, s := range i.suffixes {
		if len(id) > len(s) && strings.HasSuffix(id, s) {
			return true
		}
	}
	return false
}

// Selector chooses objects by their labels. The zero value chooses all.
type Selector struct {
	Labels      map[string]string
	Expressions []Expression
}

// Expression is a condition on one label. Operator is In, NotIn, Exists or
// DoesNotExist.
type Expression struct {
	Key, Operator string
	Values        []string
}

// Matches reports whether labels satisfy all that s says. An operator that is not
// known is satisfied by nothing.
func (s *Selector) Matches(labels map[string]string) bool {
	for k, v := range s.Labels {
		if got, ok := labels[k]; !ok || got != v {
			return false
		}
	}
	for i := range s.Expressions {
		if !s.Expressions[i].matches(labels) {
			return false
		}
	}
	return true
}

func (e *Expression) matches(labels map[string]string) bool {
	got, ok := labels[e.Key]
	switch e.Operator {
	case "In":
		return ok && slices.Contains(e.Values, got)
	case "NotIn": // also of objects without the label, as in Kubernetes
		return !ok || !slices.Contains(e.Values, got)
	case "Exists":
		return ok
	case "DoesNotExist":
		return !ok
	}
	return false
}
