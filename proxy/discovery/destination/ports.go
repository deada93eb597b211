package destination

import (
	"context"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"

	"github.com/meshctl/meshctl/proxy/discovery/destination/wire"
	"github.com/meshctl/meshctl/proxy/policy"
)

const (
	// portsMost is how many ports are watched. There are as many as the application
	// listens on, unless somebody tries them all.
	portsMost = 1024
	// portsRound is how often is looked which are in use; what was not twice is let go.
	portsRound = 45 * time.Second
)

// PortsConfig says what counts beside the control plane.
type PortsConfig struct {
	// Unasked says who may call while the control plane cannot be asked, and if it does
	// not serve this.
	Unasked policy.Inbound
	// Known are ports that are asked about from the start, and always.
	Known []uint16
	// Port makes a Port of what was said of one.
	Port func(port uint16, d policy.Description) (*policy.Port, error)
}

// Ports says who may call the ports of the client's pod, as the control plane has
// it. It is a policy.Inbound. A port is asked about when it is first used; see
// port.counts for what counts meanwhile.
type Ports struct {
	client *Client
	cfg    PortsConfig
	nobody *policy.Port

	ports    atomic.Pointer[map[uint16]*port] // replaced under the client's lock
	unserved atomic.Bool                      // the control plane does not know the API
	crowded  atomic.Bool                      // told of

	mu    sync.Mutex // of heard
	heard []func()
}

// port is one that is watched. But for used and now it is under the client's lock.
type port struct {
	number uint16
	used   atomic.Bool                 // since the last look
	now    atomic.Pointer[policy.Port] // nil: what Unasked says
	unused int                         // looks in a row
	known  bool
	said   *inbound.Server // nil: nothing yet
	late   bool            // it is not waited for any longer
	open   bool            // what was configured here has counted last
	cancel context.CancelFunc
	timer  *time.Timer
}

// Ports has the control plane asked for the policy of ports, too. It is called once,
// before Run.
func (c *Client) Ports(cfg PortsConfig) *Ports {
	deny := policy.Compile(policy.Config{Default: policy.Deny}, policy.Objects{})
	p := &Ports{client: c, cfg: cfg, nobody: deny.Port(1)}
	all := map[uint16]*port{}
	for _, n := range cfg.Known {
		all[n] = &port{number: n, known: true}
		p.counts(all[n])
	}
	p.ports.Store(&all)
	c.ports = p
	return p
}

// Port implements policy.Inbound.
func (p *Ports) Port(number uint16) *policy.Port {
	w := (*p.ports.Load())[number]
	if w == nil {
		if w = p.add(number); w == nil {
			return p.unwatched(number)
		}
	}
	if !w.used.Load() { // loops must not fight for the line
		w.used.Store(true)
	}
	if now := w.now.Load(); now != nil {
		return now
	}
	return p.cfg.Unasked.Port(number)
}

// Changed implements policy.Inbound.
func (p *Ports) Changed(f func()) {
	p.mu.Lock()
	p.heard = append(p.heard, f)
	p.mu.Unlock()
	p.cfg.Unasked.Changed(f)
}

func (p *Ports) tell() {
	p.mu.Lock()
	heard := p.heard
	p.mu.Unlock()
	for _, f := range heard {
		f()
	}
}

// add watches a port; nil: too many are watched.
func (p *Ports) add(number uint16) *port {
	c := p.client
	c.mu.Lock()
	defer c.mu.Unlock()
	old := *p.ports.Load()
	if w := old[number]; w != nil {
		return w
	}
	if len(old) >= portsMost {
		return nil
	}
	w := &port{number: number}
	p.counts(w)
	p.begin(w)
	p.put(func(all map[uint16]*port) { all[number] = w })
	return w
}

// put changes the map. The lock is held.
func (p *Ports) put(change func(map[uint16]*port)) {
	next := maps.Clone(*p.ports.Load())
	change(next)
	p.ports.Store(&next)
}

// unwatched is what counts for one port too many.
func (p *Ports) unwatched(number uint16) *policy.Port {
	if p.unserved.Load() || !p.client.up.Load() {
		return p.cfg.Unasked.Port(number)
	}
	if !p.crowded.Swap(true) {
		p.client.cfg.Log.Warn("more ports are tried than are watched: nobody may call the rest", "ports", portsMost)
	}
	return p.nobody
}

// counts decides what counts for a port, and reports whether that is something else
// than before. What was said last counts, however long ago. Before anything was
// said it is waited for a little, and then: nobody may call while the control plane
// is connected, as it has this pod or its Servers still to come; where it cannot be
// asked what was configured here counts. The lock is held.
func (p *Ports) counts(w *port) bool {
	now := p.nobody
	switch {
	case p.unserved.Load() && w.said == nil:
		now = nil
	case w.said != nil:
		d := wire.InboundPort(p.client.cfg.Namespace, w.said)
		made, err := p.cfg.Port(w.number, d)
		if err != nil {
			p.client.cfg.Log.Warn("the routes that the control plane names of a port do not count: no request comes under one", "port", w.number, "err", err)
		}
		now = made
	case !p.client.up.Load() && (w.late || p.client.failed.Load()):
		now, w.open = nil, true
	case w.late:
		w.open = false
	case w.open: // the connection has just come: who was let in is not turned away for a moment
		now = nil
	default:
		if before := w.now.Load(); before != nil && before.Pending {
			return false
		}
		now = &policy.Port{Server: policy.Ref{Kind: "default", Name: "pending"}, StrictDetect: true, Pending: true}
	}
	return w.now.Swap(now) != now
}
