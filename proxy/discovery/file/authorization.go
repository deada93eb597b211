package file

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"net/netip"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

// DetectAction is the annotation of a Server that says what becomes of connections
// to it that do not turn out to be HTTP: open or close.
const DetectAction = "config.meshctl.io/detect-timeout-action"

// ours is the object that is read, as package policy names objects.
func (r *reader) ours() policy.Object {
	o := r.object
	return policy.Object{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name, File: o.File, Line: o.Line}
}

// proxyProtocols are the words of spec.proxyProtocol.
func proxyProtocol(word string) (kind protocol.Kind, grpc, ok bool) {
	switch word {
	case "", "unknown":
		return protocol.Unknown, false, true
	case "HTTP/1":
		return protocol.HTTP1, false, true
	case "HTTP/2":
		return protocol.HTTP2, false, true
	case "gRPC":
		return protocol.HTTP2, true, true
	case "opaque":
		return protocol.Opaque, false, true
	case "TLS":
		return protocol.TLS, false, true
	}
	return protocol.Unknown, false, false
}

func (r *reader) server(raw []byte) {
	var k server
	if !r.into(raw, &k) {
		return
	}
	out := &policy.Server{Object: r.ours(), Created: k.CreationTimestamp.Time, Labels: k.Labels}
	out.Pods = r.selector("spec.podSelector", k.Spec.PodSelector)
	out.External = r.selector("spec.externalWorkloadSelector", k.Spec.ExternalWorkloadSelector)
	ok := true
	if out.Pods == nil && out.External == nil {
		r.wrong("spec", "neither podSelector nor externalWorkloadSelector")
		return
	}
	if k.Spec.Port.Type == intstr.String {
		if out.PortName = k.Spec.Port.StrVal; out.PortName == "" {
			r.wrong("spec.port", "neither a port nor the name of one")
			return
		}
	} else if out.Port, ok = r.number("spec.port", k.Spec.Port.IntVal); !ok {
		return
	}
	if out.Protocol, out.GRPC, ok = proxyProtocol(k.Spec.ProxyProtocol); !ok {
		r.wrong("spec.proxyProtocol", "%q: want unknown, HTTP/1, HTTP/2, gRPC, opaque or TLS", k.Spec.ProxyProtocol)
		return
	}
	var err error
	if k.Spec.AccessPolicy != "" {
		if out.Access, err = policy.ParseDefault(k.Spec.AccessPolicy); err != nil {
			r.wrong("spec.accessPolicy", "%v", err)
			return
		}
	}
	if action, said := k.Annotations[DetectAction]; said {
		if out.Detect, err = policy.ParseAction(action); err != nil {
			r.wrong(annotationField(DetectAction), "%v", err)
			return
		}
	}
	r.objects.Policies.Servers = append(r.objects.Policies.Servers, out)
}

// selector copies a label selector; nil is none.
func (r *reader) selector(field string, s *metav1.LabelSelector) *policy.Selector {
	if s == nil {
		return nil
	}
	out := &policy.Selector{Labels: s.MatchLabels}
	for i, e := range s.MatchExpressions {
		at := fmt.Sprintf("%s.matchExpressions[%d]", field, i)
		switch e.Operator {
		case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
			if len(e.Values) == 0 {
				r.wrong(at+".values", "%s needs values", e.Operator)
			}
		case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
			if len(e.Values) > 0 {
				r.wrong(at+".values", "%s has no values", e.Operator)
			}
		default:
			r.wrong(at+".operator", "%q: want In, NotIn, Exists or DoesNotExist", e.Operator)
		}
		out.Expressions = append(out.Expressions, policy.Expression{Key: e.Key, Operator: string(e.Operator), Values: e.Values})
	}
	return out
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

// serversOf are the Servers among the parents of a route, which are in its own
// namespace.
func (r *reader) serversOf(parents []gateway.ParentReference) []string {
	var out []string
	for i, p := range parents {
		if text(p.Kind) != "Server" || text(p.Group) != policy.Group {
			continue
		}
		if space := text(p.Namespace); space != "" && space != r.object.Namespace {
			field := fmt.Sprintf("spec.parentRefs[%d].namespace", i)
			r.problem(NoTarget, r.at(field), field, "a route is for Servers of its own namespace: this one does not count")
			continue
		}
		if name := string(p.Name); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// attachServers keeps a route for Servers. judge: nobody else has it judged.
func (r *reader) attachServers(to route.Route, servers []string, judge bool) {
	if judge {
		r.judge(&cluster.Route{Object: r.object, Route: to})
	}
	r.objects.Policies.Routes = append(r.objects.Policies.Routes, &policy.Route{Object: r.ours(), Group: r.group, Route: to, Servers: servers})
}

// ownPod keeps what any pod may have to do with policy: it may be the proxy's own.
func (r *reader) ownPod(k *corev1.Pod, addrs []netip.Addr) {
	out := &policy.Pod{Object: r.ours(), IPs: addrs, Labels: k.Labels, Default: defaultPolicy(k.Annotations)}
	for _, list := range [][]corev1.Container{k.Spec.InitContainers, k.Spec.Containers} {
		for i := range list {
			c := &list[i]
			for _, p := range c.Ports {
				if p.Name != "" && tcp(p.Protocol) && p.ContainerPort > 0 && p.ContainerPort <= 65535 {
					out.Ports = append(out.Ports, policy.NamedPort{Name: p.Name, Number: uint16(p.ContainerPort)})
				}
			}
			for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
				if one, ok := probe(c, p); ok && !slices.Contains(out.Probes, one) {
					out.Probes = append(out.Probes, one)
				}
			}
		}
	}
	r.objects.Policies.Pods = append(r.objects.Policies.Pods, out)
}

// probe is where the kubelet asks with HTTP; it asks with HTTPS without the proxy
// seeing a path.
func probe(c *corev1.Container, p *corev1.Probe) (policy.Probe, bool) {
	if p == nil || p.HTTPGet == nil || p.HTTPGet.Scheme == corev1.URISchemeHTTPS {
		return policy.Probe{}, false
	}
	port := p.HTTPGet.Port.IntVal
	if name := p.HTTPGet.Port.StrVal; p.HTTPGet.Port.Type == intstr.String {
		for _, n := range c.Ports {
			if n.Name == name {
				port = n.ContainerPort
			}
		}
	}
	path, _, _ := strings.Cut(cmp.Or(p.HTTPGet.Path, "/"), "?")
	if !strings.HasPrefix(path, "/") {
		path = "/" + path // as the kubelet does
	}
	return policy.Probe{Port: uint16(port), Path: path}, port > 0 && port <= 65535
}

func (r *reader) ownNamespace(annotations map[string]string) {
	if d := defaultPolicy(annotations); d != 0 {
		r.objects.Policies.Namespaces = append(r.objects.Policies.Namespaces, &policy.Namespace{Object: r.ours(), Default: d})
	}
}

// defaultPolicy is what an annotation says; one that is wrong was told of already.
func defaultPolicy(annotations map[string]string) policy.Default {
	d, _ := policy.ParseDefault(annotations[annotation.DefaultInboundPolicy])
	return d
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
