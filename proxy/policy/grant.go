package policy

import (
	"cmp"
	"strings"
)

// appendGrant adds what an AuthorizationPolicy asks, if all that it requires is
// there: else it lets nobody in.
func (c *compiler) appendGrant(to []*grant, a *AuthorizationPolicy) []*grant {
	g := &grant{ref: Ref{Group: Group, Kind: "authorizationpolicy", Namespace: a.Namespace, Name: a.Name}}
	for _, r := range a.Required {
		namespace := cmp.Or(r.Namespace, a.Namespace)
		switch {
		case r.isMeshTLS():
			authn := c.meshTLS[[2]string{namespace, r.Name}]
			if authn == nil {
				return to
			}
			g.who = append(g.who, c.identities(authn.Identities, authn.Refs, authn.Namespace))
		case r.isNetwork():
			authn := c.nets[[2]string{namespace, r.Name}]
			if authn == nil {
				return to
			}
			g.from = append(g.from, authn.Networks)
		case r.isServiceAccount():
			ref := IdentityRef{Kind: "ServiceAccount", Namespace: r.Namespace, Name: r.Name}
			g.who = append(g.who, c.identities(nil, []IdentityRef{ref}, a.Namespace))
		default:
			return to
		}
	}
	return append(to, g)
}

func (r Required) isMeshTLS() bool { return r.Group == Group && r.Kind == "MeshTLSAuthentication" }
func (r Required) isNetwork() bool { return r.Group == Group && r.Kind == "NetworkAuthentication" }
func (r Required) isServiceAccount() bool {
	return (r.Group == "" || r.Group == "core") && r.Kind == "ServiceAccount"
}

// older is what a ServerAuthorization asks. Without networks of its own it is for
// the cluster's.
func (c *compiler) older(a *ServerAuthorization) *grant {
	g := &grant{ref: Ref{Group: Group, Kind: "serverauthorization", Namespace: a.Namespace, Name: a.Name}}
	networks := a.Networks
	if len(networks) == 0 {
		for _, p := range c.cfg.ClusterNetworks {
			networks = append(networks, Network{CIDR: p})
		}
	}
	g.from = [][]Network{networks}
	switch {
	case a.Unauthenticated:
	case a.TLS:
		g.tls = true
	default:
		g.who = []identities{c.identities(a.Identities, a.ServiceAccounts, a.Namespace)}
	}
	return g
}

// identities collects names, and those that objects stand for; namespace is that
// of refs without one.
func (c *compiler) identities(names []string, refs []IdentityRef, namespace string) identities {
	var out identities
	for _, n := range names {
		if ValidIdentity(n) {
			out.add(n)
		}
	}
	for _, r := range refs {
		space := cmp.Or(r.Namespace, namespace)
		switch r.Kind {
		case "ServiceAccount":
			out.add(c.dns(r.Name, space))
			out.add("spiffe://" + c.cfg.TrustDomain + "/ns/" + space + "/sa/" + r.Name)
		case "Namespace":
			space = cmp.Or(r.Name, space)
			out.add("*" + c.dns("", space))
			out.accounts = append(out.accounts, "spiffe://"+c.cfg.TrustDomain+"/ns/"+space+"/sa/")
		}
	}
	return out
}

// dns is the name that Linkerd gives to a ServiceAccount.
func (c *compiler) dns(account, namespace string) string {
	return strings.Join([]string{account, namespace, "serviceaccount.identity", c.cfg.ControlNamespace, c.cfg.TrustDomain}, ".")
}
