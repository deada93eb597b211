package lint

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/internal/knownports"
)

// checkAppProtocols finds values of appProtocol that nobody knows: such a port is
// opaque, for Linkerd as here.
func checkAppProtocols(w *world) {
	for _, s := range w.services {
		for i, p := range s.spec.Ports {
			if p.AppProtocol == nil || !tcp(p.Protocol) || appProtocol(*p.AppProtocol) != protocolStrange {
				continue
			}
			fix := "write linkerd.io/opaque if the port is to be opaque, else http or kubernetes.io/h2c, or leave it out"
			switch v := strings.ToLower(*p.AppProtocol); {
			case strings.HasPrefix(v, "grpc") || v == "http2" || v == "h2c":
				fix = "write kubernetes.io/h2c"
			case strings.HasSuffix(v, "/ws") || v == "ws":
				fix = "write http, which lets WebSockets pass"
			}
			w.find(OpaqueAppProtocol, s.Object, join(portField(i), "appProtocol"), fix, "%q makes the port opaque: no metrics of requests, no routes, no retries", *p.AppProtocol)
		}
	}
}

func portField(i int) string { return "spec.ports[" + itoa(i) + "]" }

// declared is what an appProtocol says of a port.
type declared uint8

const (
	protocolUnsaid declared = iota
	protocolHTTP
	protocolOpaque
	protocolStrange // opaque, because nobody knows it
)

func appProtocol(value string) declared {
	switch strings.ToLower(value) {
	case "":
		return protocolUnsaid
	case "http", "kubernetes.io/h2c":
		return protocolHTTP
	case "linkerd.io/opaque", "linkerd.io/tcp":
		return protocolOpaque
	}
	return protocolStrange
}

func tcp(p corev1.Protocol) bool { return p == "" || p == corev1.ProtocolTCP }

// checkOpaquePorts compares each port of a Service with the same port of the pods
// behind it, and looks for names in the lists that no port has.
func checkOpaquePorts(w *world) {
	for _, s := range w.services {
		for i, p := range s.spec.Ports {
			if !tcp(p.Protocol) {
				continue
			}
			for _, pod := range s.selects {
				if w.meshed(pod) {
					w.comparePort(s, i, p, pod)
				}
			}
		}
		w.serviceNames(s)
	}
	for _, p := range w.workloads {
		w.podNames(p)
	}
}

// comparePort compares one port of a Service with what a workload's pods say.
func (w *world) comparePort(s *service, i int, p corev1.ServicePort, pod *workload) {
	port, name, ok := target(p, pod)
	if !ok {
		return
	}
	field, said := portField(i), false
	service, because := w.has(w.opaqueOf(s), uint16(p.Port), p.Name), annotation.OpaquePorts
	if p.AppProtocol != nil {
		switch appProtocol(*p.AppProtocol) {
		case protocolStrange:
			return // said already
		case protocolOpaque:
			service, said = true, true
		case protocolHTTP:
			service, said = false, true
		}
	}
	if said {
		field, because = join(field, "appProtocol"), "appProtocol "+*p.AppProtocol
	} else if _, own := s.Annotations[annotation.OpaquePorts]; own {
		field = annotationField("", annotation.OpaquePorts)
	} else if w.opaqueOf(s) == nil {
		because = "the default list"
	}
	inPod := w.has(w.opaque(pod), port, name)
	switch {
	case service && !inPod:
		w.find(OpaqueMismatch, s.Object, field, "add "+itoa(int(port))+" to "+annotation.OpaquePorts+" of the pod template",
			"port %d is opaque by %s, and port %d of %v, where it leads, is not", p.Port, because, port, pod.Object)
	case inPod && !service:
		w.find(OpaqueMismatch, s.Object, field, "set appProtocol: linkerd.io/opaque, or take the port from the pod's list",
			"port %d is not opaque, and port %d of %v, where it leads, is", p.Port, port, pod.Object)
	}
}

// target is the pod's port behind a Service's port, and its name in the pod.
func target(p corev1.ServicePort, pod *workload) (port uint16, name string, ok bool) {
	to := p.TargetPort
	if to.Type == intstr.Int && to.IntVal == 0 {
		to.IntVal = p.Port
	}
	for _, c := range appContainers(pod) {
		for _, cp := range c.Ports {
			if tcp(cp.Protocol) && (to.Type == intstr.String && cp.Name == to.StrVal || to.Type == intstr.Int && cp.ContainerPort == to.IntVal) {
				return uint16(cp.ContainerPort), cp.Name, true
			}
		}
	}
	if to.Type == intstr.Int && to.IntVal > 0 && to.IntVal < 65536 {
		return uint16(to.IntVal), "", true
	}
	return 0, "", false
}

// appContainers are a workload's containers without the proxy's own.
func appContainers(p *workload) []corev1.Container {
	var out []corev1.Container
	for _, c := range p.spec.Containers {
		if !isProxy(c.Name) {
			out = append(out, c)
		}
	}
	for _, c := range p.spec.InitContainers { // native sidecars serve ports too
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways && !isProxy(c.Name) {
			out = append(out, c)
		}
	}
	return out
}

// serviceNames looks for names in a Service's own list that none of its ports has.
func (w *world) serviceNames(s *service) {
	list := portsOf(s.Annotations[annotation.OpaquePorts], true)
	if list == nil {
		return
	}
	names := map[string]bool{}
	for _, p := range s.spec.Ports {
		names[p.Name] = true
		names[p.TargetPort.StrVal] = true
	}
	w.names(s.Object, "", list, names, "no port of this Service")
}

// podNames does the same for a pod's list.
func (w *world) podNames(p *workload) {
	list := portsOf(p.annotations[annotation.OpaquePorts], true)
	if list == nil {
		return
	}
	names := map[string]bool{}
	for _, c := range appContainers(p) {
		for _, port := range c.Ports {
			names[port.Name] = true
		}
	}
	w.names(p.Object, p.path, list, names, "no port of these containers")
}

func (w *world) names(o *Object, path string, list *annotation.Ports, have map[string]bool, who string) {
	for _, n := range list.Names {
		if !have[n] {
			w.find(NoSuchPortName, o, annotationField(path, annotation.OpaquePorts), "write the number, or name the port", "%q: %s has that name", n, who)
		}
	}
}

// checkServerFirst tells of ports whose customary protocol has the server speak
// first. Nothing breaks; declaring them saves the wait.
func checkServerFirst(w *world) {
	first := map[uint16]knownports.Entry{}
	for _, e := range knownports.All() {
		for _, r := range e.Ports.Ranges() {
			for port := int(r.Lo); port <= int(r.Hi) && e.First == knownports.Server; port++ {
				first[uint16(port)] = e
			}
		}
	}
	for _, s := range w.services {
		for i, p := range s.spec.Ports {
			e, ok := first[uint16(p.Port)]
			said := p.AppProtocol != nil && *p.AppProtocol != ""
			if ok && tcp(p.Protocol) && !said && !w.has(w.opaqueOf(s), uint16(p.Port), p.Name) {
				w.find(ServerFirst, s.Object, portField(i), "set appProtocol: linkerd.io/opaque",
					"port %d is customary for %s, where the server speaks first: a connection waits until the proxy has found that out", p.Port, e.Title)
			}
		}
	}
}
