package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/file"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// targetAnswer is what a destination stands for, by the resources.
type targetAnswer struct {
	Kind      string       `json:"kind"` // service, headless, pod, workload, egress or address
	Object    string       `json:"object,omitempty"`
	Place     string       `json:"place,omitempty"` // file:line
	Port      uint16       `json:"port"`
	PortName  string       `json:"port_name,omitempty"`
	Refused   string       `json:"refused,omitempty"`
	Protocol  string       `json:"protocol,omitempty"` // empty: the first bytes tell
	Reason    string       `json:"reason"`
	Decided   string       `json:"decided"` // in words, with the object and its place
	DecidedBy string       `json:"decided_by,omitempty"`
	DecidedAt string       `json:"decided_at,omitempty"` // file:line
	Endpoints []string     `json:"endpoints,omitempty"`
	Mesh      []meshAnswer `json:"mesh,omitempty"` // of each endpoint, in their order
	Routes    bool         `json:"routes,omitempty"`
	Warnings  []string     `json:"warnings,omitempty"`
}

// target asks the resources, or the API, about a destination; nil without both.
func (e *explainFlags) target(dst netip.AddrPort, opaque ports.Set, local func(netip.Addr) bool) (*targetAnswer, error) {
	in := cluster.Config{Namespace: e.targets.namespace, Opaque: opaque, TrustDomain: e.targets.trustDomain, Local: local}
	api, err := e.targets.api.config(e.targets.resources)
	var v discovery.View
	switch {
	case err != nil:
		return nil, err
	case api != nil:
		if _, err := picture(*api, in, func(s *cluster.Snapshot) { v = s.Find(dst) }); err != nil {
			return nil, err
		}
	case len(e.targets.resources) == 0:
		return nil, nil
	default:
		snapshot, report := file.NewReader(file.Config{Paths: e.targets.resources, Cluster: in}).Load()
		if err := report.Err(); err != nil {
			return nil, inputError{fmt.Errorf("reading resources: %w", err)}
		}
		v = snapshot.Find(dst)
	}
	a := &targetAnswer{
		Kind: v.Kind.String(), Object: v.Object.String(), Place: v.Object.Place(), Port: v.Port, PortName: v.PortName,
		Refused: v.Refused.String(), Reason: v.Protocol.Reason.String(), Decided: v.Protocol.String(),
		DecidedBy: v.Protocol.By.String(), DecidedAt: v.Protocol.By.Place(), Routes: v.Table != nil, Warnings: v.Protocol.Warnings,
	}
	if v.Protocol.Kind != protocol.Unknown {
		a.Protocol = v.Protocol.Kind.String()
	}
	for _, endpoint := range v.Endpoints {
		a.Endpoints = append(a.Endpoints, endpoint.Addr.String())
		a.Mesh = append(a.Mesh, meshOf(endpoint))
	}
	return a, nil
}

// overrule is what the proxy does with a connection to the target instead of
// what it would do with a bare address.
func (a *targetAnswer) overrule(p *proxyAnswer, waits string) *proxyAnswer {
	switch {
	case p == nil || !p.speaks():
		return p
	case a.Refused == discovery.NoSuchPort.String():
		return &proxyAnswer{Action: "refuse", Does: fmt.Sprintf("refuses it: %s has no TCP port %d", a.Object, a.Port)}
	case a.Refused != "":
		return &proxyAnswer{Action: "refuse", Does: fmt.Sprintf("refuses it: %s denies it", a.Object)}
	case len(a.Endpoints) == 0:
		return &proxyAnswer{Action: "refuse", Does: "refuses it: no endpoint is ready"}
	case a.Protocol == protocol.Opaque.String():
		return &proxyAnswer{Action: "opaque", Does: "passes it on as TCP at once"}
	case a.Protocol != "":
		return &proxyAnswer{Action: a.Protocol, Does: "takes it for " + strings.ToUpper(a.Protocol[:4]) + a.Protocol[4:] + " at once"}
	}
	return &proxyAnswer{Action: "detect", Does: "tells the protocol from the client's first bytes", First: waits}
}

// shownEndpoints is how many of them a person wants to read.
const shownEndpoints = 4

// lines are those of the answer, for people.
func (a *targetAnswer) lines() []string {
	what := "an address that no object names"
	if a.Object != "" {
		what = fmt.Sprintf("%s port %d", a.Object, a.Port)
		if a.PortName != "" {
			what += " (" + a.PortName + ")"
		}
		if a.Kind == "headless" {
			what += ", one of its pods"
		}
		if a.Place != "" {
			what += ", " + a.Place
		}
	}
	out := []string{"  target   " + what}
	if a.Refused == "" {
		out = append(out, "  decided  "+a.Decided)
		if n := len(a.Endpoints); a.Kind == "service" && n > 0 {
			list := strings.Join(a.Endpoints[:min(n, shownEndpoints)], ", ")
			if n > shownEndpoints {
				list += fmt.Sprintf(" and %d more", n-shownEndpoints)
			}
			out = append(out, "  one of   "+list)
		}
	}
	if a.Refused == "" {
		out = append(out, a.meshLines()...)
	}
	if a.Routes {
		out = append(out, "  routes   requests go by its routes or annotations")
	}
	for _, w := range a.Warnings {
		out = append(out, "  beware   "+w)
	}
	return out
}

// ownPorts puts the pod's own annotation over the list of opaque ports: it counts
// for what comes in.
func (e *explainFlags) ownPorts(s *proxySettings, said bool) error {
	if !e.inbound || said || e.rules.annotations == "" {
		return nil
	}
	pod, _, err := file.Annotations(e.rules.annotations)
	if err != nil {
		return inputError{err}
	}
	if pod.OpaquePorts != nil {
		s.opaque = pod.OpaquePorts.Over(policy.DefaultOpaque(), func(string) ports.Set { return ports.Set{} })
		s.opaqueWhy = "by the annotation in " + e.rules.annotations
	}
	return nil
}
