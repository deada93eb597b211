package wire

import (
	"slices"
	"strings"

	dst "github.com/linkerd/linkerd2-proxy-api/go/destination"
	meta "github.com/linkerd/linkerd2-proxy-api/go/meta"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/meshctl/meshctl/proxy/discovery"
)

// weight is what Linkerd gives to every endpoint.
const weight = 10_000

// Endpoint is e as the API writes it.
func Endpoint(e discovery.Endpoint) *dst.WeightedAddr {
	out := &dst.WeightedAddr{Addr: Address(e.Addr), Weight: weight, MetricLabels: map[string]string{}}
	if namespace, name, ok := strings.Cut(e.Pod, "/"); ok {
		out.MetricLabels["pod"] = name
		out.ResourceRef = &meta.Metadata{Kind: &meta.Metadata_Resource{Resource: &meta.Resource{
			Group: coreGroup, Kind: "Pod", Namespace: namespace, Name: name}}}
	}
	if e.Zone != "" {
		out.MetricLabels["zone"] = e.Zone
	}
	hint := &dst.ProtocolHint{}
	if e.Opaque {
		hint.Protocol = &dst.ProtocolHint_Opaque_{Opaque: &dst.ProtocolHint_Opaque{}}
	}
	if m := e.Mesh; m.Meshed() {
		out.TlsIdentity = identity(m)
		hint.OpaqueTransport = &dst.ProtocolHint_OpaqueTransport{InboundPort: uint32(m.Port)}
		if !e.Opaque {
			hint.Protocol = &dst.ProtocolHint_H2_{H2: &dst.ProtocolHint_H2{}}
		}
	}
	if hint.Protocol != nil || hint.OpaqueTransport != nil {
		out.ProtocolHint = hint
	}
	setText(out, ownNode, e.Node)
	if e.Mesh.NoTLS != discovery.NotProvided && e.Mesh.NoTLS != discovery.Loopback { // the proxy knows these itself
		setText(out, ownNoTLS, e.Mesh.NoTLS)
	}
	return out
}

func identity(m discovery.Mesh) *dst.TlsIdentity {
	out := &dst.TlsIdentity{ServerName: &dst.TlsIdentity_DnsLikeIdentity{Name: m.ServerName}}
	if strings.HasPrefix(m.ID, "spiffe://") {
		out.Strategy = &dst.TlsIdentity_UriLikeIdentity_{UriLikeIdentity: &dst.TlsIdentity_UriLikeIdentity{Uri: m.ID}}
	} else {
		out.Strategy = &dst.TlsIdentity_DnsLikeIdentity_{DnsLikeIdentity: &dst.TlsIdentity_DnsLikeIdentity{Name: m.ID}}
	}
	return out
}

// ParseEndpoint reads an endpoint; ok is false for one without an address.
func ParseEndpoint(w *dst.WeightedAddr) (e discovery.Endpoint, ok bool) {
	e.Addr = AddrPort(w.GetAddr())
	if !e.Addr.IsValid() {
		return e, false
	}
	if r := w.GetResourceRef().GetResource(); r.GetKind() == "Pod" {
		e.Pod = r.GetNamespace() + "/" + r.GetName()
	}
	e.Zone, e.Node = w.GetMetricLabels()["zone"], text(w, ownNode)
	hint := w.GetProtocolHint()
	e.Opaque = hint.GetOpaque() != nil
	id := w.GetTlsIdentity()
	switch s := id.GetStrategy().(type) {
	case *dst.TlsIdentity_DnsLikeIdentity_:
		e.Mesh.ID = s.DnsLikeIdentity.GetName()
	case *dst.TlsIdentity_UriLikeIdentity_:
		e.Mesh.ID = s.UriLikeIdentity.GetUri()
	}
	if e.Mesh.ID == "" {
		e.Mesh.NoTLS = text(w, ownNoTLS)
		if e.Mesh.NoTLS == "" {
			e.Mesh.NoTLS = discovery.NotProvided
		}
		return e, true
	}
	e.Mesh.ServerName = id.GetServerName().GetName()
	if e.Mesh.ServerName == "" {
		e.Mesh.ServerName = e.Mesh.ID
	}
	e.Mesh.Port = uint16(hint.GetOpaqueTransport().GetInboundPort())
	return e, true
}

// Endpoints are the members of a Service by address, as Get sends them.
type Endpoints struct {
	Exists bool
	List   []discovery.Endpoint // sorted by address
}

// Apply returns what an Update makes of e. e itself does not change.
func (e Endpoints) Apply(u *dst.Update) Endpoints {
	switch u := u.GetUpdate().(type) {
	case *dst.Update_Add:
		list := slices.Clone(e.List)
		for _, w := range u.Add.GetAddrs() {
			one, ok := ParseEndpoint(w)
			if !ok {
				continue
			}
			at, found := slices.BinarySearchFunc(list, one, compare)
			if found {
				list[at] = one
			} else {
				list = slices.Insert(list, at, one)
			}
		}
		return Endpoints{true, list}
	case *dst.Update_Remove:
		list := slices.Clone(e.List)
		for _, a := range u.Remove.GetAddrs() {
			if at, found := slices.BinarySearchFunc(list, discovery.Endpoint{Addr: AddrPort(a)}, compare); found {
				list = slices.Delete(list, at, at+1)
			}
		}
		return Endpoints{true, list}
	case *dst.Update_NoEndpoints:
		return Endpoints{Exists: u.NoEndpoints.GetExists()}
	default:
		return e
	}
}

func compare(a, b discovery.Endpoint) int { return a.Addr.Compare(b.Addr) }

// Updates are what makes before into e. A nil before is what a new stream knows.
// labels are those of the whole set.
func (e Endpoints) Updates(before *Endpoints, labels map[string]string) []*dst.Update {
	if len(e.List) == 0 {
		if before != nil && len(before.List) == 0 && before.Exists == e.Exists {
			return nil
		}
		return []*dst.Update{{Update: &dst.Update_NoEndpoints{NoEndpoints: &dst.NoEndpoints{Exists: e.Exists}}}}
	}
	var old []discovery.Endpoint
	if before != nil {
		old = before.List
	}
	added, removed := differ(old, e.List)
	var out []*dst.Update
	if len(added) > 0 {
		set := &dst.WeightedAddrSet{MetricLabels: labels}
		for _, one := range added {
			set.Addrs = append(set.Addrs, Endpoint(one))
		}
		out = append(out, &dst.Update{Update: &dst.Update_Add{Add: set}})
	}
	if len(removed) > 0 {
		set := &dst.AddrSet{}
		for _, one := range removed {
			set.Addrs = append(set.Addrs, Address(one.Addr))
		}
		out = append(out, &dst.Update{Update: &dst.Update_Remove{Remove: set}})
	}
	return out
}

// differ compares two sorted lists: added are those that are new or changed.
func differ(old, now []discovery.Endpoint) (added, removed []discovery.Endpoint) {
	for len(old) > 0 || len(now) > 0 {
		switch {
		case len(old) == 0 || len(now) > 0 && compare(now[0], old[0]) < 0:
			added, now = append(added, now[0]), now[1:]
		case len(now) == 0 || compare(now[0], old[0]) > 0:
			removed, old = append(removed, old[0]), old[1:]
		default:
			if old[0] != now[0] {
				added = append(added, now[0])
			}
			old, now = old[1:], now[1:]
		}
	}
	return added, removed
}

// The numbers of our own fields: far beyond those of the API. Others skip them.
const (
	ownView  protowire.Number = 14905 // of an OutboundPolicy: JSON, see own
	ownNode  protowire.Number = 14906 // of a WeightedAddr: the name of the node
	ownNoTLS protowire.Number = 14907 // of a WeightedAddr: why it is not meshed
	ownPort  protowire.Number = 14908 // of an inbound.Server: JSON, see portOwn
)

// setText puts a text into a field of our own; an empty one is left out.
func setText(m protoreflect.ProtoMessage, field protowire.Number, s string) {
	if s != "" {
		setBytes(m, field, []byte(s))
	}
}

func setBytes(m protoreflect.ProtoMessage, field protowire.Number, b []byte) {
	r := m.ProtoReflect()
	raw := protowire.AppendTag(slices.Clone(r.GetUnknown()), field, protowire.BytesType)
	r.SetUnknown(protowire.AppendBytes(raw, b))
}

func text(m protoreflect.ProtoMessage, field protowire.Number) string {
	return string(bytesOf(m, field))
}

// bytesOf reads a field of our own; nil if it is not there.
func bytesOf(m protoreflect.ProtoMessage, field protowire.Number) []byte {
	raw := m.ProtoReflect().GetUnknown()
	for len(raw) > 0 {
		number, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return nil
		}
		raw = raw[n:]
		if number == field && kind == protowire.BytesType {
			b, _ := protowire.ConsumeBytes(raw)
			return b
		}
		if n = protowire.ConsumeFieldValue(number, kind, raw); n < 0 {
			return nil
		}
		raw = raw[n:]
	}
	return nil
}
