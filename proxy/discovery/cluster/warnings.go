package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/proxy/discovery"
)

// WarningKind is what a Warning is about. The zero value means "not said".
type WarningKind uint8

// The kinds of warning.
const (
	Twice              WarningKind = iota + 1 // two objects claim the same name or address
	UnknownAppProtocol                        // an appProtocol that is not known
	Contradiction                             // a Service and a pod declare a port differently
	NoSlices                                  // a Service with addresses and no EndpointSlice
	NoBackend                                 // a route sends to a Service that is not there
)

// Warning is something that its author probably did not mean.
type Warning struct {
	Kind   WarningKind
	Object discovery.Object
	Field  string
	Text   string
}

// Warnings are what is odd about the objects together, in the order of files.
func (s *Snapshot) Warnings() []Warning {
	out := slices.Clone(s.conflicts)
	out = append(out, s.missing()...)
	for _, svc := range s.services {
		out = append(out, s.warningsOf(svc)...)
	}
	slices.SortStableFunc(out, func(a, b Warning) int {
		if c := strings.Compare(a.Object.File, b.Object.File); c != 0 {
			return c
		}
		return a.Object.Line - b.Object.Line
	})
	return out
}

func (s *Snapshot) warningsOf(svc *Service) []Warning {
	var out []Warning
	if (len(svc.IPs) > 0 || svc.Headless) && len(s.slices[named(svc.Object)]) == 0 && len(svc.Ports) > 0 {
		out = append(out, Warning{NoSlices, svc.Object, "", "no EndpointSlice of it is here: connections to it have nowhere to go"})
	}
	if svc.Headless {
		return out // its ports declare nothing: the pods do
	}
	for i := range svc.Ports {
		p := &svc.Ports[i]
		var v discovery.View
		receivers := s.ready(svc, p, true, &v)
		if len(v.Endpoints) == 0 {
			receivers = s.ready(svc, p, false, &v)
		}
		d := s.decide(svc, p, receivers)
		for _, text := range d.Warnings {
			w := Warning{Contradiction, p.At, fmt.Sprintf("spec.ports[%d]", p.Index), text}
			if d.Reason == discovery.UnknownAppProtocol {
				w.Kind, w.Field = UnknownAppProtocol, w.Field+".appProtocol"
			}
			out = append(out, w)
		}
	}
	return out
}
