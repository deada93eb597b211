package lint

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/meshctl/meshctl/internal/annotation"
)

// The proxy's customary ports and user; annotations change them.
const (
	inboundPort  = 4143
	outboundPort = 4140
	controlPort  = 4190
	adminPort    = 4191
	proxyUID     = 2102
)

// nativeSince is the minor version of Kubernetes from which on native sidecars are
// there unless somebody switches them off.
const nativeSince = 29

// checkPods looks at what the pods of meshed workloads are made of.
func checkPods(w *world) {
	for _, p := range w.workloads {
		if !w.meshed(p) {
			continue
		}
		if p.spec.HostNetwork {
			w.find(HostNetwork, p.Object, join(p.path, "spec.hostNetwork"), "set linkerd.io/inject: disabled, or leave the host's network",
				"the rules would redirect the whole node's traffic, so that it is not meshed")
		}
		w.users(p)
		w.takenPorts(p)
		w.job(p)
	}
}

// users finds containers that run as the proxy's user.
func (w *world) users(p *workload) {
	uid := int64(proxyUID)
	if v, _, _, ok := w.annotation(p, annotation.ProxyUID); ok {
		if id, err := annotation.ParseID(v); err == nil {
			uid = int64(id)
		}
	}
	fix := "give it another runAsUser, or the proxy another by " + annotation.ProxyUID
	const text = "user %d is the proxy's, whose connections are not redirected: this traffic goes around the mesh"
	for _, group := range []struct {
		field string
		all   []corev1.Container
	}{{"spec.containers", p.spec.Containers}, {"spec.initContainers", p.spec.InitContainers}} {
		for i, c := range group.all {
			if s := c.SecurityContext; s != nil && s.RunAsUser != nil && *s.RunAsUser == uid && !isProxy(c.Name) {
				w.find(ProxyUID, p.Object, join(p.path, group.field+"["+itoa(i)+"].securityContext.runAsUser"), fix, text, uid)
			}
		}
	}
	if s := p.spec.SecurityContext; s != nil && s.RunAsUser != nil && *s.RunAsUser == uid {
		w.find(ProxyUID, p.Object, join(p.path, "spec.securityContext.runAsUser"), fix, text, uid)
	}
}

// takenPorts finds ports of containers that are the proxy's.
func (w *world) takenPorts(p *workload) {
	taken := map[int32]string{}
	for _, own := range []struct {
		key  string
		port int32
	}{
		{annotation.OutboundPort, outboundPort}, {annotation.InboundPort, inboundPort},
		{annotation.ControlPort, controlPort}, {annotation.AdminPort, adminPort},
	} {
		if v, _, _, ok := w.annotation(p, own.key); ok {
			if port, err := annotation.ParsePort(v); err == nil {
				own.port = int32(port)
			}
		}
		taken[own.port] = own.key
	}
	for i, c := range p.spec.Containers {
		for j, port := range c.Ports {
			if key := taken[port.ContainerPort]; key != "" && !isProxy(c.Name) && tcp(port.Protocol) {
				w.find(ProxyPortTaken, p.Object, join(p.path, "spec.containers["+itoa(i)+"].ports["+itoa(j)+"].containerPort"),
					"use another port, or give the proxy another by "+key, "port %d is the proxy's own", port.ContainerPort)
			}
		}
	}
}

// job finds Jobs whose proxy would outlive them.
func (w *world) job(p *workload) {
	if p.Kind != "Job" && p.Kind != "CronJob" {
		return
	}
	const key = annotation.Prefix + "proxy-enable-native-sidecar"
	if v, at, field, ok := w.annotation(p, key); ok {
		if native, err := annotation.ParseBool(v); err == nil && !native {
			w.find(JobNeverEnds, at, field, "take the annotation away, or POST /shutdown to the admin port at the end",
				"%v does not end: a proxy that is an ordinary container goes on when the work is done", p.Object)
		}
		return
	}
	if w.KubernetesMinor > 0 && w.KubernetesMinor < nativeSince {
		w.find(JobNeverEnds, p.Object, "", "POST /shutdown to the admin port at the end, or use Kubernetes 1.29 or later",
			"Kubernetes 1.%d may have no native sidecars: the proxy goes on when the work is done", w.KubernetesMinor)
	}
}

// probeOf is a probe's port, and where it stands.
type probeOf struct {
	field string
	port  intstr.IntOrString
}

func probesOf(c corev1.Container) []probeOf {
	var out []probeOf
	for _, p := range []struct {
		field string
		probe *corev1.Probe
	}{{"livenessProbe", c.LivenessProbe}, {"readinessProbe", c.ReadinessProbe}, {"startupProbe", c.StartupProbe}} {
		switch {
		case p.probe == nil:
		case p.probe.HTTPGet != nil:
			out = append(out, probeOf{p.field + ".httpGet.port", p.probe.HTTPGet.Port})
		case p.probe.TCPSocket != nil:
			out = append(out, probeOf{p.field + ".tcpSocket.port", p.probe.TCPSocket.Port})
		case p.probe.GRPC != nil:
			out = append(out, probeOf{p.field + ".grpc.port", intstr.FromInt32(p.probe.GRPC.Port)})
		}
	}
	return out
}

// enforce is the label with the Pod Security level of a namespace.
const enforce = "pod-security.kubernetes.io/enforce"

// checkPodSecurity finds namespaces that refuse the init container, which needs
// NET_ADMIN. The levels baseline and restricted both do.
func checkPodSecurity(w *world) {
	for _, ns := range w.objects {
		if ns.Kind != "Namespace" || ns.Group != "" {
			continue
		}
		level := strings.ToLower(ns.Labels[enforce])
		if level != "baseline" && level != "restricted" {
			continue
		}
		if who := w.meshedIn(ns); who != "" {
			w.find(PodSecurity, ns, `metadata.labels["`+enforce+`"]`, "set it to privileged, or exempt these pods",
				"level %s refuses NET_ADMIN, which the init container of %s needs", level, who)
		}
	}
}

// meshedIn names something meshed in a namespace; "" if there is nothing.
func (w *world) meshedIn(ns *Object) string {
	for _, p := range w.workloads {
		if p.Namespace == ns.Name && w.meshed(p) {
			return p.String()
		}
	}
	if v := ns.Annotations[Inject]; v == "enabled" || v == "ingress" {
		return "each pod that is made here"
	}
	return ""
}
