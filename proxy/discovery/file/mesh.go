package file

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
)

// controlPlane is the label of a pod that an injector has given a proxy; its
// value is the injector's namespace, which is part of the pod's identity.
const controlPlane = "linkerd.io/control-plane-ns"

// A pod's other ports, unless its annotations say otherwise: they never lead to
// the proxy's inbound port.
const (
	adminPort   = 4191
	controlPort = 4190
)

// meshPorts are the annotations that move a proxy's ports, as a pod has them. What
// is wrong with them has been told.
func meshPorts(annotations map[string]string) (inbound uint16, skip ports.Set) {
	var entries []annotation.Entry
	for _, key := range []string{annotation.SkipInboundPorts, annotation.InboundPort, annotation.AdminPort, annotation.ControlPort} {
		if value, said := annotations[key]; said {
			entries = append(entries, annotation.Entry{Key: key, Value: value})
		}
	}
	said, _ := annotation.Read(entries)
	inbound = or(said.InboundPort, cluster.DefaultInboundPort)
	own := ports.Of(inbound, or(said.AdminPort, adminPort), or(said.ControlPort, controlPort))
	return inbound, own.Union(annotation.Skips(said.SkipInboundPorts, ports.Set{}))
}

func or(p *uint16, otherwise uint16) uint16 {
	if p == nil {
		return otherwise
	}
	return *p
}

// proxyOf is the proxy in front of a pod. A pod on the host's network has none:
// an injector leaves it alone, whatever its labels say.
func proxyOf(k *corev1.Pod) cluster.Proxy {
	plane := k.Labels[controlPlane]
	if plane == "" || k.Spec.HostNetwork {
		return cluster.Proxy{}
	}
	p := cluster.Proxy{ControlPlane: plane, Account: k.Spec.ServiceAccountName}
	p.Port, p.Skip = meshPorts(k.Annotations)
	return p
}

// externalWorkload is ExternalWorkload of workload.linkerd.io/v1beta1, as far as
// it is read; Linkerd publishes no Go type without its whole module.
type externalWorkload struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		MeshTLS *meshTLS `json:"meshTLS,omitempty"`
		OldTLS  *meshTLS `json:"meshTls,omitempty"` // as v1alpha1 spells it
		Ports   []struct {
			Name     string          `json:"name,omitempty"`
			Port     int32           `json:"port"`
			Protocol corev1.Protocol `json:"protocol,omitempty"`
		} `json:"ports,omitempty"`
		WorkloadIPs []struct {
			IP string `json:"ip"`
		} `json:"workloadIPs,omitempty"`
	} `json:"spec"`
	Status any `json:"status,omitempty"`
}

// meshTLS is how the proxy of an ExternalWorkload is known.
type meshTLS struct {
	Identity   string `json:"identity"`
	ServerName string `json:"serverName"`
}

func (r *reader) workload(raw []byte) {
	var k externalWorkload
	if !r.into(raw, &k) {
		return
	}
	out := &cluster.Workload{Object: r.object, Opaque: r.opaque(k.Annotations)}
	tls, field := k.Spec.MeshTLS, "spec.meshTLS"
	if tls == nil && k.Spec.OldTLS != nil {
		tls, field = k.Spec.OldTLS, "spec.meshTls"
	}
	if tls != nil {
		if tls.Identity == "" {
			r.wrong(field+".identity", "it is empty: want a DNS name or a SPIFFE ID, such as spiffe://example.org/vm")
			return
		}
		out.ID, out.ServerName = tls.Identity, tls.ServerName
		out.Port, out.Skip = meshPorts(k.Annotations)
	}
	for i, p := range k.Spec.Ports {
		n, ok := r.number(fmt.Sprintf("spec.ports[%d].port", i), p.Port)
		if ok && p.Name != "" && tcp(p.Protocol) {
			out.Ports = append(out.Ports, cluster.ContainerPort{Name: p.Name, Number: n})
		}
	}
	for i, ip := range k.Spec.WorkloadIPs {
		if a, ok := r.addr(fmt.Sprintf("spec.workloadIPs[%d].ip", i), ip.IP); ok {
			out.IPs = append(out.IPs, a)
		}
	}
	r.objects.Workloads = append(r.objects.Workloads, out)
}
