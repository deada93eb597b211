package cluster

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/policy"
)

// Key names an object that Live holds.
type Key struct{ Kind, Namespace, Name string }

// The kinds that a Live takes one by one, as group/kind; every other kind has it
// make the picture anew.
const (
	ServiceKind = "/Service"
	SliceKind   = "discovery.k8s.io/EndpointSlice"
	PodKind     = "/Pod"
)

// Item is an object as it is now: what it was read as. Without Objects it is gone.
type Item struct {
	Key
	Objects Objects
}

// manyItems is from how many on a new picture costs less than changes, which hold
// readers up.
const manyItems = 2000

// Live is a picture that changes with its objects: a discovery.Source that costs
// little for each of the many changes of Services, EndpointSlices and pods. Apply
// belongs to one goroutine; anybody may ask.
type Live struct {
	mu     sync.RWMutex // held to change s in place, and to replace it
	s      *Snapshot
	slices map[name]*Slice
	other  map[Key]Objects
	// own are the pods that policies are asked about: those of the clients' namespace.
	own map[name]*policy.Pod
	// Addresses that are claimed once more than s knows.
	serviceIPs claims[Service]
	podIPs     claims[Pod]
}

// NewLive makes a Live without objects.
func NewLive(cfg Config) *Live {
	return &Live{s: Build(cfg, Objects{}, nil), slices: map[name]*Slice{}, other: map[Key]Objects{}, own: map[name]*policy.Pod{}}
}

// Find implements discovery.Source.
func (l *Live) Find(dst netip.AddrPort) discovery.View {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.s.Find(dst)
}

// In is the picture for clients of a namespace, if it was made for everyone.
func (l *Live) In(namespace string) discovery.Source { return in{l, namespace} }

type in struct {
	live      *Live
	namespace string
}

// Find implements discovery.Source.
func (i in) Find(dst netip.AddrPort) discovery.View {
	i.live.mu.RLock()
	defer i.live.mu.RUnlock()
	return i.live.s.In(i.namespace).Find(dst)
}

// Read lets f look at the picture, which does not change meanwhile. f must not keep
// it, nor take long.
func (l *Live) Read(f func(*Snapshot)) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	f(l.s)
}

// Keys are the objects of a kind. The goroutine of Apply may ask.
func (l *Live) Keys(kind string) []Key {
	var out []Key
	switch kind {
	case ServiceKind:
		for n := range l.s.services {
			out = append(out, Key{kind, n.namespace, n.name})
		}
	case SliceKind:
		for n := range l.slices {
			out = append(out, Key{kind, n.namespace, n.name})
		}
	case PodKind:
		for n := range l.s.pods {
			out = append(out, Key{kind, n.namespace, n.name})
		}
	default:
		for k := range l.other {
			if k.Kind == kind {
				out = append(out, k)
			}
		}
	}
	return out
}

// Len is how many objects there are. The goroutine of Apply may ask.
func (l *Live) Len() int {
	n := len(l.s.services) + len(l.slices) + len(l.s.pods)
	for _, o := range l.other {
		n += o.Len()
	}
	return n
}

// Apply takes changes and returns which destinations they touch. What says the
// same as before changes nothing. The objects must not change any more.
func (l *Live) Apply(items []Item) *discovery.Change {
	items = slices.DeleteFunc(slices.Clone(items), l.known)
	whole := len(items) > manyItems
	for _, it := range items {
		whole = whole || !single(it.Kind)
	}
	if whole {
		l.rebuild(items)
		return &discovery.Change{All: true, Policies: true}
	}
	change := &discovery.Change{}
	if len(items) == 0 {
		return change
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	odd := len(l.s.conflicts)
	for _, it := range items {
		l.one(it, change)
	}
	if change.Policies {
		l.s.policies.Pods = l.ownPods()
	}
	l.s.conflicts = l.s.conflicts[:min(odd, len(l.s.conflicts))] // else it would grow without end
	return change
}

func single(kind string) bool { return kind == ServiceKind || kind == SliceKind || kind == PodKind }

// known reports whether an item says what is known.
func (l *Live) known(it Item) bool {
	n := name{it.Namespace, it.Name}
	switch it.Kind {
	case ServiceKind:
		return reflect.DeepEqual(l.s.services[n], first(it.Objects.Services))
	case SliceKind:
		return reflect.DeepEqual(l.slices[n], first(it.Objects.Slices))
	case PodKind:
		return reflect.DeepEqual(l.s.pods[n], first(it.Objects.Pods)) && reflect.DeepEqual(l.own[n], l.ownOf(it))
	default:
		before, ok := l.other[it.Key]
		if it.Objects.Len() == 0 {
			return !ok
		}
		return ok && reflect.DeepEqual(before, it.Objects)
	}
}

func first[T any](list []*T) *T {
	if len(list) == 0 {
		return nil
	}
	return list[0]
}

// rebuild makes a new picture while the old one still answers.
func (l *Live) rebuild(items []Item) {
	gone := make(map[Key]bool, len(items))
	for _, it := range items {
		gone[it.Key] = true
	}
	var all Objects
	for n, svc := range l.s.services {
		if !gone[Key{ServiceKind, n.namespace, n.name}] {
			all.Services = append(all.Services, svc)
		}
	}
	for n, p := range l.s.pods {
		if !gone[Key{PodKind, n.namespace, n.name}] {
			all.Pods = append(all.Pods, p)
		}
	}
	for n, sl := range l.slices {
		if !gone[Key{SliceKind, n.namespace, n.name}] {
			all.Slices = append(all.Slices, sl)
		}
	}
	for _, it := range items {
		switch {
		case it.Kind == PodKind:
			all.Pods = append(all.Pods, it.Objects.Pods...)
			l.keepOwn(it)
		case it.Kind == SliceKind:
			l.keep(it)
			fallthrough
		case single(it.Kind):
			all.Add(it.Objects)
		case it.Objects.Len() == 0:
			delete(l.other, it.Key)
		default:
			l.other[it.Key] = it.Objects
		}
	}
	keys := make([]Key, 0, len(l.other))
	for k := range l.other {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b Key) int {
		return strings.Compare(a.Kind+" "+a.Namespace+" "+a.Name, b.Kind+" "+b.Namespace+" "+b.Name)
	})
	for _, k := range keys {
		all.Add(l.other[k])
	}
	inOrder(all.Services, func(o *Service) discovery.Object { return o.Object })
	inOrder(all.Pods, func(o *Pod) discovery.Object { return o.Object })
	inOrder(all.Slices, func(o *Slice) discovery.Object { return o.Object })
	all.Policies.Pods = append(all.Policies.Pods, l.ownPods()...)
	next := Build(l.s.cfg, all, l.s)
	l.serviceIPs, l.podIPs = nil, nil
	for _, svc := range all.Services {
		for _, a := range svc.IPs {
			l.serviceIPs.hide(a, svc, next.serviceIPs[a])
		}
	}
	for _, p := range all.Pods {
		for _, a := range p.IPs {
			l.podIPs.hide(a, p, next.podIPs[a])
		}
	}
	l.mu.Lock()
	l.s = next
	l.mu.Unlock()
}

// inOrder sorts objects by name: of a map they come in any order.
func inOrder[T any](list []*T, object func(*T) discovery.Object) {
	slices.SortFunc(list, func(a, b *T) int {
		x, y := object(a), object(b)
		if c := strings.Compare(x.Namespace, y.Namespace); c != 0 {
			return c
		}
		return strings.Compare(x.Name, y.Name)
	})
}

// keep holds a slice under its own name.
func (l *Live) keep(it Item) {
	if sl := first(it.Objects.Slices); sl != nil {
		l.slices[name{it.Namespace, it.Name}] = sl
	} else {
		delete(l.slices, name{it.Namespace, it.Name})
	}
}
