package destination

import (
	"context"
	"time"

	"google.golang.org/grpc/connectivity"
)

// Stats are numbers for metrics.
type Stats struct {
	Connected bool
	Age       time.Duration // for how long what is known may be out of date; 0: it is not
	Streams   int           // open
	Watched   int           // destinations
	Ports     int           // of the pod, about which is asked who may call
	Messages  uint64
	Requests  uint64 // streams begun
	Failures  uint64 // of streams
}

// look follows the state of the connection.
func (c *Client) look(ctx context.Context) {
	c.conn.Connect()
	ever := false
	for {
		state := c.conn.GetState()
		switch state {
		case connectivity.Shutdown:
			return
		case connectivity.Ready:
			came := !c.up.Swap(true)
			c.down.Store(0)
			c.failed.Store(false)
			ever = true
			if came {
				c.cfg.Log.Info("destination service connected")
				c.lookAtPorts(true)
			}
		case connectivity.TransientFailure:
			if !c.failed.Swap(true) && !ever {
				c.cfg.Log.Warn("the destination service cannot be reached: addresses count as they are until it can", "addrs", c.cfg.Addrs)
			}
			c.lookAtPorts(false)
			fallthrough
		default:
			if c.up.Swap(false) {
				c.down.Store(time.Now().UnixNano())
				c.cfg.Log.Warn("destination service lost: what was heard last counts")
				c.lookAtPorts(false)
			}
			if state == connectivity.Idle {
				c.conn.Connect()
			}
		}
		if !c.conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

func (c *Client) lookAtPorts(came bool) {
	if c.ports != nil {
		c.ports.look(came)
	}
}

// Stats returns numbers for metrics.
func (c *Client) Stats() Stats {
	c.mu.Lock()
	watched := len(c.lookups)
	c.mu.Unlock()
	s := Stats{Connected: c.up.Load(), Streams: int(c.open.Load()), Watched: watched, Messages: c.messages.Load(), Requests: c.requests.Load(), Failures: c.failures.Load()}
	if c.ports != nil {
		s.Ports = c.ports.size()
	}
	if since := c.down.Load(); since != 0 {
		s.Age = time.Since(time.Unix(0, since))
	}
	return s
}
