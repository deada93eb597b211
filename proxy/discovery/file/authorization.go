package file

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/policy"
)

// ours is the object that is read, as package policy names objects.
func (r *reader) ours() policy.Object {
	o := r.object
	return policy.Object{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, File: o.File, Line: o.Line}
}

func (r *reader) authorizationPolicy(raw []byte) {
	var k authorizationPolicy
	if !r.into(raw, &k) {
		return
	}
	t := k.Spec.TargetRef
	out := &policy.AuthorizationPolicy{Object: r.ours(), Target: policy.Target{Group: group(t.Group), Kind: t.Kind, Name: t.Name}}
	switch known := out.Target.Group + "/" + t.Kind; known {
	case "policy.linkerd.io/Server", "policy.linkerd.io/HTTPRoute", "gateway.networking.k8s.io/HTTPRoute", "gateway.networking.k8s.io/GRPCRoute", "/Namespace":
	default:
		r.wrong("spec.targetRef.kind", "%s: want a Server, an HTTPRoute, a GRPCRoute or a Namespace, and its group", strings.TrimPrefix(known, "/"))
		return
	}
	if t.Name == "" {
		r.wrong("spec.targetRef.name", "no name")
		return
	}
	for i, ref := range k.Spec.RequiredAuthenticationRefs {
		one := policy.Required{Group: group(ref.Group), Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
		field := fmt.Sprintf("spec.requiredAuthenticationRefs[%d]", i)
		switch known := one.Group + "/" + one.Kind; known {
		case "policy.linkerd.io/MeshTLSAuthentication", "policy.linkerd.io/NetworkAuthentication", "/ServiceAccount":
		default:
			r.wrong(field+".kind", "%s: want a MeshTLSAuthentication, a NetworkAuthentication or a ServiceAccount, and its group", strings.TrimPrefix(known, "/"))
			return
		}
		if one.Name == "" {
			r.wrong(field+".name", "no name")
			return
		}
		out.Required = append(out.Required, one)
	}
	r.objects.Policies.Authorizations = append(r.objects.Policies.Authorizations, out)
}

// group is an API group; the core group has no name, and some write one.
func group(text string) string {
	if text == "core" {
		return ""
	}
	return text
}

func (r *reader) meshTLSAuthentication(raw []byte) {
	var k meshTLSAuthentication
	if !r.into(raw, &k) {
		return
	}
	out := &policy.MeshTLSAuthentication{Object: r.ours(), Identities: k.Spec.Identities}
	if !r.identities("spec.identities", k.Spec.Identities) {
		return
	}
	for i, ref := range k.Spec.IdentityRefs {
		one, field := policy.IdentityRef{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}, fmt.Sprintf("spec.identityRefs[%d]", i)
		switch known := group(ref.Group) + "/" + ref.Kind; {
		case known != "/ServiceAccount" && known != "/Namespace":
			r.wrong(field+".kind", "%s: want a ServiceAccount or a Namespace", strings.TrimPrefix(known, "/"))
			return
		case ref.Kind == "ServiceAccount" && ref.Name == "":
			r.wrong(field+".name", "no name")
			return
		}
		out.Refs = append(out.Refs, one)
	}
	if len(out.Identities)+len(out.Refs) == 0 {
		r.wrong("spec", "neither identities nor identityRefs")
		return
	}
	r.objects.Policies.MeshTLS = append(r.objects.Policies.MeshTLS, out)
}

// identities looks at names of clients.
func (r *reader) identities(field string, list []string) bool {
	for i, id := range list {
		if !policy.ValidIdentity(id) {
			r.wrong(fmt.Sprintf("%s[%d]", field, i), "%q: want *, *.suffix or a name", id)
			return false
		}
	}
	return true
}

func (r *reader) networkAuthentication(raw []byte) {
	var k networkAuthentication
	if !r.into(raw, &k) {
		return
	}
	if len(k.Spec.Networks) == 0 {
		r.wrong("spec.networks", "no network: nobody can satisfy it")
		return
	}
	networks, ok := r.networks("spec.networks", k.Spec.Networks)
	if !ok {
		return
	}
	r.objects.Policies.Networks = append(r.objects.Policies.Networks, &policy.NetworkAuthentication{Object: r.ours(), Networks: networks})
}

// networks reads subnets with holes; an address alone is a subnet of one.
func (r *reader) networks(field string, list []network) ([]policy.Network, bool) {
	var out []policy.Network
	for i, n := range list {
		at := fmt.Sprintf("%s[%d]", field, i)
		cidr, ok := r.addresses(at+".cidr", n.CIDR)
		if !ok {
			return nil, false
		}
		one := policy.Network{CIDR: cidr}
		for j, text := range n.Except {
			hole, ok := r.addresses(fmt.Sprintf("%s.except[%d]", at, j), text)
			if !ok {
				return nil, false
			}
			one.Except = append(one.Except, hole)
		}
		out = append(out, one)
	}
	return out, true
}

func (r *reader) addresses(field, text string) (netip.Prefix, bool) {
	if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" && !a.Is4In6() {
		return netip.PrefixFrom(a, a.BitLen()), true
	}
	return r.subnet(field, text)
}

func (r *reader) serverAuthorization(raw []byte) {
	var k serverAuthorization
	if !r.into(raw, &k) {
		return
	}
	c := k.Spec.Client
	out := &policy.ServerAuthorization{
		Object: r.ours(), Server: k.Spec.Server.Name, Selector: r.selector("spec.server.selector", k.Spec.Server.Selector),
		Unauthenticated: c.Unauthenticated,
	}
	if (out.Server == "") == (out.Selector == nil) {
		r.wrong("spec.server", "want one of name and selector")
		return
	}
	var ok bool
	if out.Networks, ok = r.networks("spec.client.networks", c.Networks); !ok {
		return
	}
	if m := c.MeshTLS; m != nil {
		if !r.identities("spec.client.meshTLS.identities", m.Identities) {
			return
		}
		out.TLS, out.Identities = m.UnauthenticatedTLS, m.Identities
		for i, a := range m.ServiceAccounts {
			if a.Name == "" {
				r.wrong(fmt.Sprintf("spec.client.meshTLS.serviceAccounts[%d].name", i), "no name")
				return
			}
			out.ServiceAccounts = append(out.ServiceAccounts, policy.IdentityRef{Kind: "ServiceAccount", Namespace: a.Namespace, Name: a.Name})
		}
	}
	if !out.Unauthenticated && !out.TLS && len(out.Identities)+len(out.ServiceAccounts) == 0 {
		r.wrong("spec.client", "it lets nobody in: want unauthenticated or meshTLS with identities, serviceAccounts or unauthenticatedTLS")
		return
	}
	r.objects.Policies.ServerAuthorizations = append(r.objects.Policies.ServerAuthorizations, out)
}

// policyProblems are those that the objects about policy have with each other.
func policyProblems(s *cluster.Snapshot) []Problem {
	var out []Problem
	codes := map[policy.Fault]Code{
		policy.UnknownReference: UnknownRef, policy.NoTarget: NoTarget, policy.OverlappingServers: Overlap, policy.SelectsNothing: SelectsNothing,
		policy.UnknownPortName: UnknownPortName, policy.TwiceThere: Twice, policy.OpenToAll: OpenToAll, policy.NeverApplies: NeverApplies,
	}
	for _, p := range policy.Check(s.Policies()) {
		o := p.Object
		at := discovery.Object{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, File: o.File, Line: o.Line}
		out = append(out, Problem{Code: codes[p.Fault], Object: at, Field: p.Field, Text: p.Text})
	}
	return out
}
