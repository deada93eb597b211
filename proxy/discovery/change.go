package discovery

import "net/netip"

// Change is what is new of a Source that changes in place: which destinations may
// have another View now. The zero value is nothing.
type Change struct {
	All      bool // any destination
	Addrs    map[netip.Addr]struct{}
	Services map[ServiceName]struct{}
	Pods     map[string]struct{} // namespace/name
	Policies bool                // who may call is another; this touches no View
}

// ServiceName names a Service.
type ServiceName struct{ Namespace, Name string }

// IsZero reports whether nothing has changed.
func (c *Change) IsZero() bool {
	return !c.All && !c.Policies && len(c.Addrs) == 0 && len(c.Services) == 0 && len(c.Pods) == 0
}

// AddAddr notes that an address may stand for something else.
func (c *Change) AddAddr(a netip.Addr) { put(&c.Addrs, a) }

// AddService notes that a Service or its endpoints may be others.
func (c *Change) AddService(namespace, name string) {
	put(&c.Services, ServiceName{namespace, name})
}

// AddPod notes that a pod may say something else of itself.
func (c *Change) AddPod(name string) { put(&c.Pods, name) }

func put[K comparable](to *map[K]struct{}, key K) {
	if *to == nil {
		*to = map[K]struct{}{}
	}
	(*to)[key] = struct{}{}
}

// Touches reports whether the View of dst, which was v before, may be another now.
func (c *Change) Touches(dst netip.AddrPort, v *View) bool {
	if c.All {
		return true
	}
	if _, ok := c.Addrs[dst.Addr()]; ok {
		return true
	}
	if c.touchesService(v.Object.Namespace, v.Object.Name) || c.touchesPod(v.Endpoints) {
		return true
	}
	for i := range v.Backends {
		b := &v.Backends[i]
		if c.touchesService(b.Namespace, b.Name) || c.touchesPod(b.Endpoints) {
			return true
		}
	}
	return false
}

func (c *Change) touchesService(namespace, name string) bool {
	if len(c.Services) == 0 {
		return false
	}
	_, ok := c.Services[ServiceName{namespace, name}]
	return ok
}

func (c *Change) touchesPod(endpoints []Endpoint) bool {
	if len(c.Pods) == 0 {
		return false
	}
	for i := range endpoints {
		if _, ok := c.Pods[endpoints[i].Pod]; ok {
			return true
		}
	}
	return false
}
