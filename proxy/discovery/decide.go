package discovery

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// Reason is what decided about a port's protocol. The zero value: nothing was
// declared.
type Reason uint8

// The reasons, first what is nearest to the port.
const (
	AppProtocol        Reason = iota + 1 // of the Service's port
	UnknownAppProtocol                   // a value that is not known, so opaque
	ServiceList                          // opaque-ports of the Service
	NamespaceList                        // opaque-ports of the namespace
	PodList                              // opaque-ports of the receiving pod
	EgressList                           // opaque-ports of the EgressNetwork
	DefaultList
	ControlPlane // a destination API, which does not say why
)

// String returns the word for logs and JSON.
func (r Reason) String() string {
	switch r {
	case AppProtocol:
		return "app_protocol"
	case UnknownAppProtocol:
		return "unknown_app_protocol"
	case ServiceList:
		return "service_annotation"
	case NamespaceList:
		return "namespace_annotation"
	case PodList:
		return "pod_annotation"
	case EgressList:
		return "egress_annotation"
	case DefaultList:
		return "default_list"
	case ControlPlane:
		return "control_plane"
	default:
		return "not_declared"
	}
}

// Decision is what a port speaks, and why. With the Kind Unknown nothing is
// declared and the first bytes have to tell; By and Reason then name the list
// that could have said more, if there is one.
type Decision struct {
	Kind     protocol.Kind
	Reason   Reason
	By       Object // that decided; none for the default list
	Value    string // what it says: an appProtocol or a list of ports
	Warnings []string
}

func (d Decision) same(o Decision) bool {
	return d.Kind == o.Kind && d.Reason == o.Reason && d.By == o.By && d.Value == o.Value && slices.Equal(d.Warnings, o.Warnings)
}

// String tells the decision in a line, without the warnings.
func (d Decision) String() string {
	if d.Reason == 0 {
		return "detect: nothing is declared"
	}
	from := d.By.String()
	if p := d.By.Place(); p != "" {
		from += " (" + p + ")"
	}
	switch {
	case d.Reason == ControlPlane && d.Kind == protocol.Unknown:
		return "detect: the destination API declares nothing"
	case d.Reason == ControlPlane:
		return d.Kind.String() + ": as the destination API says"
	case d.Reason == DefaultList && d.Kind == protocol.Unknown:
		return "detect: not in the default list of opaque ports"
	case d.Reason == DefaultList:
		return "opaque: in the default list of opaque ports, " + d.Value
	case d.Reason == AppProtocol || d.Reason == UnknownAppProtocol:
		return fmt.Sprintf("%s: appProtocol %q of %s", d.Kind, d.Value, from)
	case d.Kind == protocol.Unknown:
		return fmt.Sprintf("detect: not in opaque-ports %q of %s", d.Value, from)
	default:
		return fmt.Sprintf("%s: opaque-ports %q of %s", d.Kind, d.Value, from)
	}
}

// List is the opaque-ports annotation of an object. The zero value: it has none.
type List struct {
	By    Object
	Ports annotation.Ports
}

// Said reports whether the object has the annotation at all: an empty list says
// that no port is opaque.
func (l List) Said() bool { return !l.By.IsZero() }

// Receiver is a pod that gets the connections, as far as it says what it wants.
type Receiver struct {
	Pod   List   // its annotation
	Space List   // its namespace's, which counts if it has none of its own
	Port  uint16 // of the container
	Names []string
}

// list is the one that counts.
func (r Receiver) list() (List, Reason) {
	if r.Pod.Said() {
		return r.Pod, PodList
	}
	return r.Space, NamespaceList
}

// Opaque reports whether the pod wants the port opaque, by what it says itself:
// the default list does not count here.
func (r Receiver) Opaque(def ports.Set) bool {
	l, _ := r.list()
	return l.Said() && hasAny(l.Ports, r.Port, r.Names, def)
}

// Facts are what objects declare about one port.
type Facts struct {
	Kind        Kind
	Port        uint16
	PortName    string
	AppProtocol *string // of the Service's port
	AppAt       Object  // the Service, at that line
	Service     List
	Namespace   List // of the Service
	Egress      List
	Receivers   []Receiver // of a Service's port: all its pods; of a pod: the pod
	Default     ports.Set
}

// Decide is the one place where a port's protocol is decided from what is
// declared, before any byte. For a Service's port: appProtocol, then the
// opaque-ports annotation of the Service, of its Namespace, then the default
// list. For pods, headless or by address: the receiving pod's annotation (or its
// namespace's). For EgressNetworks: theirs. A list replaces the default. Where
// the receiving pod says opaque and the Service does not, the pod wins: bytes
// relayed untouched are right for any protocol.
func Decide(f Facts) Decision {
	switch f.Kind {
	case ServicePort:
		return f.receiversWord(f.ofService())
	case HeadlessPod, Pod, Workload:
		if len(f.Receivers) > 0 {
			r := f.Receivers[0]
			l, reason := r.list()
			return f.byList(l, reason, r.Port, r.Names)
		}
		return f.byDefault()
	case Egress:
		return f.byList(f.Egress, EgressList, f.Port, nil)
	default:
		return f.byDefault()
	}
}

func (f Facts) ofService() Decision {
	if f.AppProtocol != nil && *f.AppProtocol != "" {
		return f.byAppProtocol()
	}
	l, reason := f.Service, ServiceList
	if !l.Said() {
		l, reason = f.Namespace, NamespaceList
	}
	return f.byList(l, reason, f.Port, []string{f.PortName})
}

// byAppProtocol reads appProtocol as Linkerd does, whatever its case, and ws
// (KEP-3726) as what it begins with.
func (f Facts) byAppProtocol() Decision {
	d := Decision{Reason: AppProtocol, By: f.AppAt, Value: *f.AppProtocol}
	switch strings.ToLower(d.Value) {
	case "http", "kubernetes.io/ws":
		d.Kind = protocol.HTTP1
	case "kubernetes.io/h2c":
		d.Kind = protocol.HTTP2
	case "linkerd.io/opaque", "linkerd.io/tcp":
		d.Kind = protocol.Opaque
	default:
		d.Kind, d.Reason = protocol.Opaque, UnknownAppProtocol
		d.Warnings = []string{fmt.Sprintf("appProtocol %q of %s port %d is not known: the port is opaque", d.Value, f.AppAt, f.Port)}
	}
	return d
}

func (f Facts) byList(l List, reason Reason, port uint16, names []string) Decision {
	if !l.Said() {
		return f.byDefault()
	}
	d := Decision{Reason: reason, By: l.By, Value: l.Ports.String()}
	if hasAny(l.Ports, port, names, f.Default) {
		d.Kind = protocol.Opaque
	}
	return d
}

func (f Facts) byDefault() Decision {
	d := Decision{Reason: DefaultList, Value: f.Default.String()}
	if f.Default.Contains(f.Port) {
		d.Kind = protocol.Opaque
	}
	return d
}

// receiversWord lets a pod that says opaque win over its Service, and names what
// contradicts. One list that is read twice, of a namespace, contradicts nothing.
func (f Facts) receiversWord(d Decision) Decision {
	for _, r := range f.Receivers {
		l, reason := r.list()
		wants := r.Opaque(f.Default)
		switch {
		case wants && d.Kind != protocol.Opaque:
			won := Decision{Kind: protocol.Opaque, Reason: reason, By: l.By, Value: l.Ports.String(), Warnings: d.Warnings}
			if d.Reason != DefaultList && d.By != l.By {
				won.Warnings = append(slices.Clone(d.Warnings), fmt.Sprintf("%s says opaque for port %d, %s says %s for port %d: opaque wins",
					l.By, r.Port, d.By, said(d), f.Port))
			}
			return won
		case !wants && r.Pod.Said() && d.Kind == protocol.Opaque && d.Reason != DefaultList && d.Reason != UnknownAppProtocol:
			d.Warnings = append(slices.Clone(d.Warnings), fmt.Sprintf("%s says opaque for port %d, %s leaves port %s out: it finds out the protocol for itself",
				d.By, f.Port, l.By, strconv.Itoa(int(r.Port))))
			return d
		}
	}
	return d
}

// said is what a decision amounts to, in a word.
func said(d Decision) string {
	if d.Kind == protocol.Unknown {
		return "detect"
	}
	return d.Kind.String()
}

func hasAny(l annotation.Ports, port uint16, names []string, def ports.Set) bool {
	if l.Has(port, "", def) {
		return true
	}
	return slices.ContainsFunc(names, func(n string) bool { return l.Has(port, n, def) })
}
