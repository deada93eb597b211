package main

import (
	"fmt"
	"slices"

	"github.com/meshctl/meshctl/proxy/discovery"
)

// meshAnswer is whether connections to an endpoint go by mTLS.
type meshAnswer struct {
	Endpoint   string `json:"endpoint"`
	Identity   string `json:"identity,omitempty"`    // empty: without mTLS
	ServerName string `json:"server_name,omitempty"` // what the handshake asks for
	Port       uint16 `json:"port,omitempty"`        // of its proxy
	NoTLS      string `json:"no_tls_reason,omitempty"`
}

func meshOf(e discovery.Endpoint) meshAnswer {
	return meshAnswer{Endpoint: e.Addr.String(), Identity: e.Mesh.ID, ServerName: e.Mesh.ServerName, Port: e.Mesh.Port, NoTLS: e.Mesh.Reason()}
}

// words tell it without the endpoint.
func (m meshAnswer) words() string {
	switch {
	case m.Identity != "" && m.ServerName != m.Identity:
		return fmt.Sprintf("mTLS with %s, server name %s, at port %d", m.Identity, m.ServerName, m.Port)
	case m.Identity != "":
		return fmt.Sprintf("mTLS with %s, at port %d", m.Identity, m.Port)
	case m.NoTLS == discovery.Loopback:
		return "no mTLS: it is the pod itself"
	case m.NoTLS == discovery.PortSkipped:
		return "no mTLS: its pod keeps the port away from its proxy"
	default:
		return "no mTLS: it has no proxy"
	}
}

// meshLines are for people: what all endpoints have in common once, else each by
// itself. Where no endpoint has a proxy there is nothing to say.
func (a *targetAnswer) meshLines() []string {
	if !slices.ContainsFunc(a.Mesh, func(m meshAnswer) bool { return m.NoTLS != discovery.NotProvided }) {
		return nil
	}
	first := a.Mesh[0].words()
	if !slices.ContainsFunc(a.Mesh, func(m meshAnswer) bool { return m.words() != first }) {
		return []string{"  meshed   " + first}
	}
	var out []string
	for i, m := range a.Mesh {
		label := "           "
		if i == 0 {
			label = "  meshed   "
		}
		if i == shownEndpoints {
			return append(out, fmt.Sprintf("%sand %d more", label, len(a.Mesh)-i))
		}
		out = append(out, label+m.Endpoint+": "+m.words())
	}
	return out
}
