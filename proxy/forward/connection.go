package forward

import (
	"github.com/meshctl/meshctl/proxy/admin"
	"github.com/meshctl/meshctl/proxy/l4"
	"github.com/meshctl/meshctl/proxy/metrics"
)

// describe shows fl as it is now, for /connections.
func (fl *flow) describe() admin.Connection {
	c := admin.Connection{
		Direction: fl.lane.forwarder.direction.String(), Client: fl.client, Target: fl.route.Target,
		Protocol: fl.kind.String(), Detected: fl.detected, Reason: fl.reason.String(), SNI: fl.sni, ALPN: fl.alpn,
		State: fl.state(), BytesIn: fl.bytes[l4.Client], BytesOut: fl.bytes[l4.Server], Age: fl.lane.loop.Now() - fl.started,
	}
	if f := fl.lane.forwarder; f.cfg.Mesh != nil {
		l := fl.tlsLabels()
		if fl.phase != mediating && f.direction == metrics.Outbound {
			l = fl.serverTLS()
		}
		c.TLS, c.ClientID, c.ServerID = l.TLS, l.ClientID, l.ServerID
	}
	if v := fl.route.View; v != nil {
		c.Declared = v.Protocol.String()
		if !v.Object.IsZero() {
			c.Service = v.String()
		}
	}
	if fl.to != fl.route.Target && fl.phase != mediating {
		c.Endpoint = fl.to
	}
	return c
}

// state is the phase, or what the observer came to.
func (fl *flow) state() string {
	switch fl.phase {
	case detecting:
		return "detecting"
	case resolving:
		return "resolving"
	case securing, directed:
		return "securing"
	case connecting:
		return "connecting"
	case mediating:
		return "mediating"
	}
	if fl.observer != nil && fl.observer.Passive() {
		return fl.observer.State().Phase.String()
	}
	return "relaying"
}
