package file

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
)

// kinds are the objects that mean something, by group and kind. All versions of
// a group are read by the type of its stable version.
func (r *reader) kinds() map[string]func(raw []byte) {
	return map[string]func([]byte){
		"/Service":                                r.service,
		"/Pod":                                    r.pod,
		"/Namespace":                              r.space,
		"discovery.k8s.io/EndpointSlice":          r.slice,
		"policy.linkerd.io/EgressNetwork":         r.egress,
		"workload.linkerd.io/ExternalWorkload":    r.workload,
		"gateway.networking.k8s.io/HTTPRoute":     r.httpRoute,
		"gateway.networking.k8s.io/GRPCRoute":     r.grpcRoute,
		"policy.linkerd.io/Server":                r.server,
		"policy.linkerd.io/AuthorizationPolicy":   r.authorizationPolicy,
		"policy.linkerd.io/MeshTLSAuthentication": r.meshTLSAuthentication,
		"policy.linkerd.io/NetworkAuthentication": r.networkAuthentication,
		"policy.linkerd.io/ServerAuthorization":   r.serverAuthorization,
		"policy.linkerd.io/HTTPRoute":             r.httpRoute,
	}
}

// at is the object, at the line of one of its fields.
func (r *reader) at(field string) discovery.Object { return r.object.At(r.doc.lineOf(field)) }

// wrong is a value that cannot be.
func (r *reader) wrong(field, format string, args ...any) {
	r.problem(BadValue, r.at(field), field, fmt.Sprintf(format, args...))
}

// opaque reads an object's opaque-ports, and looks at its other annotations.
func (r *reader) opaque(annotations map[string]string) discovery.List {
	var out discovery.List
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		value := annotations[key]
		err := annotation.Check(key, value)
		misspelt, isMisspelt := errors.AsType[*annotation.Misspelt](err)
		field := annotationField(key)
		switch {
		case err == nil && key == annotation.OpaquePorts:
			list, _ := annotation.ParsePorts(value) // Check has read it
			out = discovery.List{By: r.at(field), Ports: list}
		case err == nil, errors.Is(err, annotation.ErrUnused):
		case isMisspelt && misspelt.Meant != "":
			r.problem(MisspeltKey, r.at(field), field, "did you mean "+misspelt.Meant+"?")
		case isMisspelt:
			r.problem(UnknownKey, r.at(field), field, "no annotation that Linkerd documents")
		default:
			r.problem(BadAnnotation, r.at(field), field, err.Error()+": it counts as not there")
		}
	}
	return out
}

// addr reads an address; v6 in v4's clothes is v4.
func (r *reader) addr(field, text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		r.wrong(field, "%q is no address", text)
		return a, false
	}
	return a.Unmap(), true
}

// number reads a port number.
func (r *reader) number(field string, n int32) (uint16, bool) {
	if n < 1 || n > 65535 {
		r.wrong(field, "%d is no port", n)
		return 0, false
	}
	return uint16(n), true
}

func (r *reader) service(raw []byte) {
	var k corev1.Service
	if !r.into(raw, &k) {
		return
	}
	out := &cluster.Service{Object: r.object, Opaque: r.opaque(k.Annotations), Policy: r.policy(k.Annotations)}
	ips := k.Spec.ClusterIPs
	if len(ips) == 0 && k.Spec.ClusterIP != "" {
		ips = []string{k.Spec.ClusterIP}
	}
	for i, text := range ips {
		if text == corev1.ClusterIPNone {
			out.Headless = true
			continue
		}
		if a, ok := r.addr(fmt.Sprintf("spec.clusterIPs[%d]", i), text); ok {
			out.IPs = append(out.IPs, a)
		}
	}
	for i, p := range k.Spec.Ports {
		field := fmt.Sprintf("spec.ports[%d]", i)
		n, ok := r.number(field+".port", p.Port)
		if !ok || !tcp(p.Protocol) {
			continue
		}
		port := cluster.Port{Name: p.Name, Number: n, AppProtocol: p.AppProtocol, At: r.object, Index: i}
		if p.AppProtocol != nil {
			port.At = r.at(field + ".appProtocol")
		}
		out.Ports = append(out.Ports, port)
	}
	r.objects.Services = append(r.objects.Services, out)
}

// tcp is true of the protocol that is meant if none is said.
func tcp(p corev1.Protocol) bool { return p == "" || p == corev1.ProtocolTCP }

func (r *reader) slice(raw []byte) {
	var k discoveryv1.EndpointSlice
	if !r.into(raw, &k) {
		return
	}
	out := &cluster.Slice{Object: r.object, Service: k.Labels[discoveryv1.LabelServiceName]}
	if out.Service == "" || k.AddressType == discoveryv1.AddressTypeFQDN {
		return // of no Service, or names that nobody connects to by address
	}
	for i, p := range k.Ports {
		if p.Port == nil || p.Protocol != nil && !tcp(*p.Protocol) {
			continue
		}
		n, ok := r.number(fmt.Sprintf("ports[%d].port", i), *p.Port)
		if ok {
			out.Ports = append(out.Ports, cluster.SlicePort{Name: deref(p.Name), Number: n})
		}
	}
	for i, e := range k.Endpoints {
		ready := e.Conditions.Ready == nil || *e.Conditions.Ready
		one := cluster.SliceEndpoint{
			Ready: ready, Serving: e.Conditions.Serving != nil && *e.Conditions.Serving || e.Conditions.Serving == nil && ready,
			Node: deref(e.NodeName), Zone: deref(e.Zone),
		}
		switch t := e.TargetRef; {
		case t == nil:
		case t.Kind == "Pod":
			one.Pod = t.Name
		case t.Kind == "ExternalWorkload":
			one.Workload = t.Name
		}
		for j, text := range e.Addresses {
			if a, ok := r.addr(fmt.Sprintf("endpoints[%d].addresses[%d]", i, j), text); ok {
				one.Addr = a
				out.Endpoints = append(out.Endpoints, one)
			}
		}
	}
	r.objects.Slices = append(r.objects.Slices, out)
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// pod reads a pod. One that has ended has given its address back, and one on the
// host's network has none of its own.
func (r *reader) pod(raw []byte) {
	var k corev1.Pod
	if !r.into(raw, &k) {
		return
	}
	out := &cluster.Pod{Object: r.object, Opaque: r.opaque(k.Annotations), Node: k.Spec.NodeName, Proxy: proxyOf(&k)}
	ended := k.Status.Phase == corev1.PodSucceeded || k.Status.Phase == corev1.PodFailed
	if !ended && !k.Spec.HostNetwork {
		ips := k.Status.PodIPs
		if len(ips) == 0 && k.Status.PodIP != "" {
			ips = []corev1.PodIP{{IP: k.Status.PodIP}}
		}
		for i, ip := range ips {
			if a, ok := r.addr(fmt.Sprintf("status.podIPs[%d].ip", i), ip.IP); ok {
				out.IPs = append(out.IPs, a)
			}
		}
	}
	for _, list := range [][]corev1.Container{k.Spec.InitContainers, k.Spec.Containers} {
		for _, c := range list {
			for _, p := range c.Ports {
				if p.Name != "" && tcp(p.Protocol) && p.ContainerPort > 0 && p.ContainerPort <= 65535 {
					out.Ports = append(out.Ports, cluster.ContainerPort{Name: p.Name, Number: uint16(p.ContainerPort)})
				}
			}
		}
	}
	r.objects.Pods = append(r.objects.Pods, out)
	r.ownPod(&k, out.IPs)
}

func (r *reader) space(raw []byte) {
	var k corev1.Namespace
	if !r.into(raw, &k) {
		return
	}
	r.object.Namespace = ""
	r.objects.Namespaces = append(r.objects.Namespaces, &cluster.Namespace{Object: r.object, Opaque: r.opaque(k.Annotations)})
	r.ownNamespace(k.Annotations)
}

func (r *reader) egress(raw []byte) {
	var k egressNetwork
	if !r.into(raw, &k) {
		return
	}
	out := &cluster.Egress{Object: r.object, Created: k.CreationTimestamp.Time, Opaque: r.opaque(k.Annotations), Policy: r.policy(k.Annotations)}
	switch k.Spec.TrafficPolicy {
	case "Allow":
	case "Deny":
		out.Deny = true
	default:
		r.wrong("spec.trafficPolicy", "%q: want Allow or Deny", k.Spec.TrafficPolicy)
		return
	}
	for i, n := range k.Spec.Networks {
		field := fmt.Sprintf("spec.networks[%d]", i)
		net := cluster.Network{}
		var ok bool
		if net.CIDR, ok = r.subnet(field+".cidr", n.CIDR); !ok {
			return
		}
		for j, text := range n.Except {
			hole, ok := r.subnet(fmt.Sprintf("%s.except[%d]", field, j), text)
			if !ok {
				return
			}
			net.Except = append(net.Except, hole)
		}
		out.Networks = append(out.Networks, net)
	}
	r.objects.Egresses = append(r.objects.Egresses, out)
}

func (r *reader) subnet(field, text string) (netip.Prefix, bool) {
	p, err := netip.ParsePrefix(text)
	if err != nil || p.Addr().Is4In6() {
		r.wrong(field, "%q is no subnet", text)
		return p, false
	}
	return p.Masked(), true
}
