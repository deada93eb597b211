package file

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/proxy/policy"
)

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
