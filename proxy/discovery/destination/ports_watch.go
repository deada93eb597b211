package destination

import (
	"context"
	"time"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

// This file is how long a port is asked about, and the asking.

// begin asks about a port, if the Client runs. The lock is held.
func (p *Ports) begin(w *port) {
	c := p.client
	if c.ctx == nil || w.cancel != nil {
		return
	}
	ctx, cancel := context.WithCancel(c.ctx)
	w.cancel = cancel
	c.streams.Go(func() { p.follow(ctx, w) })
	w.timer = time.AfterFunc(c.cfg.Wait, func() {
		p.change(w, func() bool { w.late = true; return w.said == nil })
	})
}

// run begins with what was used before the Client ran. The lock is held.
func (p *Ports) run() {
	for _, w := range *p.ports.Load() {
		p.begin(w)
	}
}

// end stops the timers; streams end with the Client.
func (p *Ports) end() {
	p.client.mu.Lock()
	defer p.client.mu.Unlock()
	for _, w := range *p.ports.Load() {
		if w.timer != nil {
			w.timer.Stop()
		}
	}
}

// change tells if set, which reports whether it has changed anything, makes
// something else count.
func (p *Ports) change(w *port, set func() bool) {
	c := p.client
	c.mu.Lock()
	changed := set() && p.counts(w)
	c.mu.Unlock()
	if changed {
		p.tell()
	}
}

// look decides again about what nothing was said of: the connection is another. One
// that has come has some time to say something.
func (p *Ports) look(came bool) {
	c := p.client
	c.mu.Lock()
	changed := false
	for _, w := range *p.ports.Load() {
		if w.said == nil {
			if came && w.timer != nil {
				w.late = false
				w.timer.Reset(c.cfg.Wait)
			}
			changed = p.counts(w) || changed
		}
	}
	c.mu.Unlock()
	if changed {
		p.tell()
	}
}

// sweep lets go of ports that nobody has used for two rounds. While the control
// plane is lost they are kept: it could not be asked again. Who has connections open
// is told, so that it asks about them, which is use.
func (p *Ports) sweep() {
	c := p.client
	c.mu.Lock()
	var gone []*port
	for _, w := range *p.ports.Load() {
		if w.unused++; w.used.Swap(false) {
			w.unused = 0
		}
		if w.unused >= 2 && !w.known && (c.up.Load() || w.said == nil) {
			gone = append(gone, w)
		}
	}
	if len(gone) > 0 {
		p.put(func(all map[uint16]*port) {
			for _, w := range gone {
				delete(all, w.number)
			}
		})
	}
	for _, w := range gone {
		if w.cancel != nil {
			w.cancel()
			w.timer.Stop()
		}
	}
	c.mu.Unlock()
	p.tell()
}

func (p *Ports) follow(ctx context.Context, w *port) {
	c := p.client
	c.follow(ctx, func(ctx context.Context) (func() error, error) {
		s, err := inbound.NewInboundServerPoliciesClient(c.conn).WatchPort(ctx, &inbound.PortSpec{Workload: c.source, Port: uint32(w.number)})
		return func() error {
			said, err := s.Recv()
			if err == nil {
				p.change(w, func() bool {
					another := !proto.Equal(w.said, said)
					w.said = said
					return another
				})
			}
			return err
		}, err
	}, func(code codes.Code) time.Duration {
		switch code {
		case codes.Unimplemented:
			if !p.unserved.Swap(true) {
				c.cfg.Log.Warn("the control plane does not say who may call: the default policy counts, and no Server does")
			}
			p.look(false)
		case codes.NotFound: // it has yet to hear of this pod
			return 0
		}
		return refusedAfter
	})
}

// size is how many ports are watched.
func (p *Ports) size() int { return len(*p.ports.Load()) }
