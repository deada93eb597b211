package wire

import (
	"encoding/json"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

// own is what the API has no field for, and a proxy of ours hears from a controller
// of ours. Files and lines are left out: they are the controller's.
type own struct {
	Kind     string   `json:"kind"` // of the destination
	Object   *named   `json:"object,omitempty"`
	PortName string   `json:"port_name,omitempty"`
	Path     string   `json:"path,omitempty"` // what Get is asked for the members
	Decision decision `json:"decision"`
	// Routes are what the Table is made of: the API has less than the Gateway API,
	// and says it otherwise.
	Routes   *route.Config `json:"routes,omitempty"`
	Backends []backendOwn  `json:"backends,omitempty"` // of the Table, but for the first
}

type named struct {
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// decision is a discovery.Decision in words, so that versions may differ.
type decision struct {
	Kind     string   `json:"kind,omitempty"`
	Reason   string   `json:"reason"`
	By       *named   `json:"by,omitempty"`
	Value    string   `json:"value,omitempty"`
	Warnings []string `json:"warnings,omitempty"`
}

// backendOwn is what a backend's Service says of itself.
type backendOwn struct {
	Namespace string            `json:"namespace"`
	Name      string            `json:"name"`
	Port      uint16            `json:"port"`
	Path      string            `json:"path,omitempty"` // empty: there is no such port
	Decision  decision          `json:"decision"`
	Policy    map[string]string `json:"policy,omitempty"` // annotations
}

func nameOf(o discovery.Object) *named {
	if o.IsZero() {
		return nil
	}
	return &named{o.Kind, o.Namespace, o.Name}
}

func (n *named) object() discovery.Object {
	if n == nil {
		return discovery.Object{}
	}
	return discovery.Object{Kind: n.Kind, Namespace: n.Namespace, Name: n.Name}
}

func decisionOf(d discovery.Decision) decision {
	return decision{d.Kind.String(), d.Reason.String(), nameOf(d.By), d.Value, d.Warnings}
}

// decision turns words back; ones that are not known count as not said.
func (d decision) decision() discovery.Decision {
	out := discovery.Decision{By: d.By.object(), Value: d.Value, Warnings: d.Warnings}
	for k := protocol.Opaque; k <= protocol.HTTP2; k++ {
		if k.String() == d.Kind {
			out.Kind = k
		}
	}
	for r := discovery.AppProtocol; r <= discovery.ControlPlane; r++ {
		if r.String() == d.Reason {
			out.Reason = r
		}
	}
	return out
}

func kindOf(word string) discovery.Kind {
	for k := discovery.ServicePort; k <= discovery.Address; k++ {
		if k.String() == word {
			return k
		}
	}
	return 0
}

// own is what the View says that the API cannot.
func (e encoder) own() []byte {
	v := e.v
	o := own{Kind: v.Kind.String(), Object: nameOf(v.Object), PortName: v.PortName, Decision: decisionOf(v.Protocol)}
	if v.Kind == discovery.ServicePort && v.Refused == 0 {
		o.Path = e.path(v.Object.Namespace, v.Object.Name, v.Port)
	}
	if v.Table != nil {
		o.Routes = &v.Table.Config
	}
	for i, b := range v.Backends {
		if i == 0 {
			continue
		}
		one := backendOwn{Namespace: b.Namespace, Name: b.Name, Port: b.Port, Decision: decisionOf(b.Protocol)}
		if !b.Object.IsZero() {
			one.Path = e.path(b.Namespace, b.Name, b.Port)
		}
		if b.Own != nil {
			one.Policy = b.Own.Config.Annotations
		}
		o.Backends = append(o.Backends, one)
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return nil // there is nothing in it that JSON does not have
	}
	return raw
}

// parseOwn reads our own field; nil if it is not there, or not to be read: then
// what the API says has to do.
func parseOwn(raw []byte) *own {
	var o own
	if len(raw) == 0 || json.Unmarshal(raw, &o) != nil || kindOf(o.Kind) == 0 {
		return nil
	}
	return &o
}
