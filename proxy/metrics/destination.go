package metrics

import (
	"net/netip"
	"strconv"
)

// Service is a port of a Kubernetes Service. The zero value is none.
type Service struct {
	Namespace, Name string
	Port            uint16
}

// Destination is where a connection was to go: the original destination, and
// the Service that it stands for, if it does.
type Destination struct {
	Addr    netip.AddrPort
	Service Service
}

// Route names an HTTPRoute or GRPCRoute. What is not said is the default of a
// parent without routes.
type Route struct{ Kind, Namespace, Name string }

// target is a Destination as labels, or, once folded, "other". The zero value is
// no destination and leaves the labels out.
type target struct {
	addr    netip.AddrPort
	service Service
	folded  bool
}

// toTarget unwraps a v4-mapped address, so that one destination is one series
// whichever listener it came through.
func toTarget(to Destination) target {
	return target{addr: netip.AddrPortFrom(to.Addr.Addr().Unmap(), to.Addr.Port()), service: to.Service.clean()}
}

func (t target) appendTo(l labels) labels {
	switch {
	case t.folded:
		return l.with("target_addr", other).with("target_ip", other).with("target_port", other)
	case !t.addr.IsValid():
		return t.service.appendTo(l)
	}
	l = l.with("target_addr", t.addr.String()).with("target_ip", t.addr.Addr().String())
	return t.service.appendTo(l.with("target_port", strconv.Itoa(int(t.addr.Port()))))
}

func (s Service) clean() Service {
	return Service{Namespace: clean(s.Namespace), Name: clean(s.Name), Port: s.Port}
}

// serviceLabels are what a Service is as labels. The authority is the name of an
// object that is known, never what a client wrote.
func serviceLabels() []string {
	return []string{"dst_service", "dst_namespace", "dst_port", "authority"}
}

func (s Service) appendTo(l labels) labels {
	if s.Name == "" {
		return l
	}
	port := strconv.Itoa(int(s.Port))
	l = l.with("dst_service", s.Name).with("dst_namespace", s.Namespace).with("dst_port", port)
	return l.with("authority", s.Name+"."+s.Namespace+".svc.cluster.local:"+port)
}

// routeLabels are what a Route is as labels.
func routeLabels() []string { return []string{"route_kind", "route_namespace", "route_name"} }

func (r Route) clean() Route {
	if r.Name == "" {
		return Route{Kind: "default", Name: "default"}
	}
	return Route{Kind: clean(r.Kind), Namespace: clean(r.Namespace), Name: clean(r.Name)}
}

func (r Route) appendTo(l labels) labels {
	return l.with("route_kind", r.Kind).known("route_namespace", r.Namespace).with("route_name", r.Name)
}
