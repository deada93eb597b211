package controller

import (
	"encoding/json"
	"net/netip"
	"slices"
	"sync"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/protobuf/proto"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/destination/wire"
)

// kind is what streams ask for.
type kind uint8

const (
	askMembers kind = iota // the endpoints of a Service's port
	askProfile
	askPolicy
	askInbound
	kinds
)

// String is the method, for metrics.
func (k kind) String() string {
	return [...]string{"Get", "GetProfile", "Watch", "WatchPort"}[k]
}

// key is one question. Profile and policy are answered together: dst is set. For
// members the name is.
type key struct {
	dst             netip.AddrPort
	from            string // the namespace of the client; empty where it does not matter
	namespace, name string // of a Service; of a pod, if inbound
	port            uint16
	v6              bool
	inbound         bool
}

// answer never changes.
type answer struct {
	view    discovery.View
	profile *destination.DestinationProfile
	policy  *outbound.OutboundPolicy

	members wire.Endpoints

	inbound *inbound.Server // nil: no such pod
}

// topic is a question that somebody asks, and its answer now.
type topic struct {
	key
	hub      *hub
	watchers int // under the hub's lock
	first    sync.Once

	mu   sync.Mutex
	now  *answer
	next chan struct{} // closed when now is another
}

// current returns the answer, and what is closed once there is another.
func (t *topic) current() (*answer, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now, t.next
}

// touched reports whether a change may make the answer another.
func (t *topic) touched(c *discovery.Change) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.now == nil: // it is being computed, maybe from the picture before
		return true
	case t.inbound:
		_, pod := c.Pods[t.namespace+"/"+t.name]
		return c.All || c.Policies || pod
	case t.dst.IsValid():
		return c.Touches(t.dst, &t.now.view)
	default:
		return c.Touches(netip.AddrPort{}, &t.now.view)
	}
}

// compute asks the picture again.
func (t *topic) compute(s *cluster.Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hub.server.worked.Add(1)
	var a *answer
	switch {
	case t.inbound:
		a = t.mayCall(s)
	case t.dst.IsValid():
		a = t.lookUp(s)
	default:
		a = t.list(s)
	}
	if t.now != nil && t.same(a) {
		t.now.view = a.view // what touches it may be other; only this topic looks at it
		return
	}
	t.now = a
	close(t.next)
	t.next = make(chan struct{})
}

func (t *topic) same(a *answer) bool {
	return proto.Equal(t.now.inbound, a.inbound) && proto.Equal(t.now.profile, a.profile) && proto.Equal(t.now.policy, a.policy) &&
		t.now.members.Exists == a.members.Exists && slices.Equal(t.now.members.List, a.members.List)
}

func (t *topic) lookUp(s *cluster.Snapshot) *answer {
	a := &answer{view: s.In(t.from).Find(t.dst)}
	c := t.hub.server.cfg.Wire
	a.profile = c.Profile(&a.view)
	a.policy = c.Policy(t.dst, &a.view, func(namespace, name string) netip.Addr {
		var v4, v6 netip.Addr
		for _, ip := range s.ServiceIPs(namespace, name) {
			if ip.Is4() {
				v4 = ip
			} else {
				v6 = ip
			}
		}
		if !v4.IsValid() {
			return netip.Addr{}
		}
		return v6
	})
	return a
}

// list finds the members of a Service: those of the family that is asked for, or
// of the other if it has none.
func (t *topic) list(s *cluster.Snapshot) *answer {
	b := s.Backend(t.namespace, t.name, t.port, !t.v6)
	if len(b.Endpoints) == 0 {
		b = s.Backend(t.namespace, t.name, t.port, t.v6)
	}
	object := discovery.Object{Kind: "Service", Namespace: t.namespace, Name: t.name}
	return &answer{
		view:    discovery.View{Kind: discovery.ServicePort, Object: object, Endpoints: b.Endpoints},
		members: wire.Endpoints{Exists: !b.Object.IsZero(), List: b.Endpoints},
	}
}

// parseToken reads the JSON of a context token.
func parseToken(text string) Workload {
	var w struct {
		Namespace string `json:"ns"`
		Node      string `json:"nodeName"`
		Pod       string `json:"pod"`
	}
	if json.Unmarshal([]byte(text), &w) != nil {
		return Workload{}
	}
	return Workload{w.Namespace, w.Pod, w.Node}
}

// same compares messages; one that was computed again is often the same.
func same(a, b proto.Message) bool { return proto.Equal(a, b) }
