package lint

import (
	"strconv"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/internal/ports"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func itoa(n int) string { return strconv.Itoa(n) }

// checkSkips finds skip lists on the wrong side. skip-outbound-ports counts for
// connections that the pod makes, skip-inbound-ports for those that come to it.
// A port in both lists of one pod is right: it is how peers of a cluster skip it.
func checkSkips(w *world) {
	for _, p := range w.workloads {
		in, inAt, inField := w.skips(p, annotation.SkipInboundPorts)
		out, outAt, outField := w.skips(p, annotation.SkipOutboundPorts)
		own := w.served(p)
		if outAt == p.Object {
			for _, port := range each(own) {
				if out.Contains(port) && !in.Contains(port) {
					w.find(SkipOutboundHere, p.Object, outField, "for connections to it write "+annotation.SkipInboundPorts+" here and "+annotation.SkipOutboundPorts+" at its clients",
						"port %d is served here, and the list counts for connections that leave the pod", port)
				}
			}
		}
		if inAt == p.Object {
			others := w.servedByOthers(p)
			for _, port := range each(others) {
				if in.Contains(port) && !own.Contains(port) && !out.Contains(port) {
					w.find(SkipInboundHere, p.Object, inField, "for connections from here write "+annotation.SkipOutboundPorts,
						"port %d is served by others and not here, and the list counts for connections that come to the pod", port)
				}
			}
		}
		w.probes(p, in)
	}
}

// each lists the ports of a set that come from objects: few.
func each(s ports.Set) []uint16 {
	var out []uint16
	for _, r := range s.Ranges() {
		for port := int(r.Lo); port <= int(r.Hi); port++ {
			out = append(out, uint16(port))
		}
	}
	return out
}

// served are the TCP ports that a workload's pods are known to serve: those of
// their containers, and those that Services send to them.
func (w *world) served(p *workload) ports.Set {
	set := ports.Set{}
	for _, c := range appContainers(p) {
		for _, port := range c.Ports {
			if tcp(port.Protocol) && port.ContainerPort > 0 && port.ContainerPort < 65536 {
				set = set.Union(ports.Of(uint16(port.ContainerPort)))
			}
		}
	}
	for _, s := range w.services {
		for _, selected := range s.selects {
			if selected != p {
				continue
			}
			for _, sp := range s.spec.Ports {
				if port, _, ok := target(sp, p); ok && tcp(sp.Protocol) {
					set = set.Union(ports.Of(port))
				}
			}
		}
	}
	return set
}

// servedByOthers are the ports of all other workloads and of Services.
func (w *world) servedByOthers(p *workload) ports.Set {
	set := ports.Set{}
	for _, o := range w.workloads {
		if o != p {
			set = set.Union(w.served(o))
		}
	}
	for _, s := range w.services {
		for _, sp := range s.spec.Ports {
			if tcp(sp.Protocol) && sp.Port > 0 && sp.Port < 65536 {
				set = set.Union(ports.Of(uint16(sp.Port)))
			}
		}
	}
	return set
}

// probes tells of probes that go around the proxy: they say nothing of whether it
// lets connections through.
func (w *world) probes(p *workload, skipped ports.Set) {
	if skipped.Empty() || !w.meshed(p) {
		return
	}
	for i, c := range p.spec.Containers {
		for _, probe := range probesOf(c) {
			port, ok := number(probe.port, p)
			if ok && skipped.Contains(port) {
				w.find(ProbeSkipped, p.Object, join(p.path, "spec.containers["+itoa(i)+"]."+probe.field), "",
					"the probe's port %d is in %s: the probe does not see what connections through the proxy see", port, annotation.SkipInboundPorts)
			}
		}
	}
}

// number is the number of a port that may be a name of one in the containers.
func number(v intstr.IntOrString, p *workload) (uint16, bool) {
	if v.Type == intstr.Int {
		return uint16(v.IntVal), v.IntVal > 0 && v.IntVal < 65536
	}
	for _, c := range appContainers(p) {
		for _, port := range c.Ports {
			if port.Name == v.StrVal {
				return uint16(port.ContainerPort), true
			}
		}
	}
	return 0, false
}
