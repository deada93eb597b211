package exchange

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/route"
)

// closed reports whether the proxy has ended e's n-th connection.
func (e *endpoint) closed(n int) bool {
	s := e.socks[n]
	if s.FD() < 0 {
		return true
	}
	var b [1]byte
	got, _, err := unix.Recvfrom(s.FD(), b[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
	return got == 0 && err == nil
}

func TestIdleConnectionsToAnEndpointThatLeftCloseAtOnce(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		bubble(t, func(c *Config) { c.PoolIdle = time.Hour }, func(t *testing.T, r *rig) {
			leaves, stays := r.endpoint(h2), r.endpoint(h2)
			m := members(leaves)
			m.Version = message.HTTP11
			if h2 {
				m.Version = message.HTTP2
			}
			r.serve(Parent{Backends: []Members{m}})
			s := r.get()
			leaves.call(1).answer(200)
			s.wants("200 end\n")
			r.settle()
			if leaves.closed(0) {
				t.Fatal("closed although its endpoint is there")
			}
			with := members(leaves, stays)
			with.Version = m.Version
			r.up.Update(Parent{Backends: []Members{with}})
			r.settle()
			if leaves.closed(0) {
				t.Fatal("closed by an update that keeps its endpoint")
			}
			without := members(stays)
			without.Version = m.Version
			r.up.Update(Parent{Backends: []Members{without}})
			r.until("the idle connection to be closed", func() bool { return leaves.closed(0) })
			if c := r.lane.Counts(); c.Idle+c.Busy+c.HTTP2 > 0 {
				t.Errorf("still open: %+v", c)
			}
		})
	}
}

func TestABusyConnectionToAnEndpointThatLeftClosesWhenItIsDone(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		bubble(t, func(c *Config) { c.PoolIdle = time.Hour }, func(t *testing.T, r *rig) {
			leaves, stays := r.endpoint(h2), r.endpoint(false)
			m := members(leaves)
			if h2 {
				m.Version = message.HTTP2
			}
			r.serve(Parent{Backends: []Members{m}})
			s := r.get()
			c := leaves.call(1)
			r.up.Update(Parent{Backends: []Members{members(stays)}}) // of another version: another backend
			r.settle()
			if leaves.closed(0) || c.aborted != 0 {
				t.Fatal("a request under way was cut")
			}
			c.answer(200)
			s.wants("200 end\n")
			r.until("the connection to be closed", func() bool { return leaves.closed(0) })
		})
	}
}

func TestAnEndpointThatComesBackIsConnectedToAgain(t *testing.T) {
	bubble(t, func(c *Config) { c.PoolIdle = time.Hour }, func(t *testing.T, r *rig) {
		e, other := r.endpoint(false), r.endpoint(false)
		r.to(e)
		first := r.get()
		busy := e.call(1)
		r.up.Update(Parent{Backends: []Members{members(other)}})
		r.settle()
		r.up.Update(Parent{Backends: []Members{members(e)}})
		s := r.get()
		e.call(2).answer(200)
		s.wants("200 end\n")
		busy.answer(200)
		first.wants("200 end\n")
		r.settle()
		if c := r.lane.Counts(); c.Idle != 2 {
			t.Errorf("connections are closed although the endpoint is back: %+v", c)
		}
	})
}

func TestAnAddressThatAnotherBackendStillHasKeepsItsConnections(t *testing.T) {
	bubble(t, func(c *Config) { c.PoolIdle = time.Hour }, func(t *testing.T, r *rig) {
		e, other := r.endpoint(false), r.endpoint(false)
		r.to(e)
		one := r.up
		s := r.get()
		e.call(1).answer(200)
		s.wants("200 end\n")
		r.to(e) // a second destination with the same endpoint
		s = r.get()
		e.call(2).answer(200)
		s.wants("200 end\n")
		one.Update(Parent{Backends: []Members{members(other)}})
		r.settle()
		if e.closed(0) {
			t.Error("closed although another destination has the endpoint")
		}
		r.up.Update(Parent{Backends: []Members{members(other)}})
		r.until("the connection to be closed", func() bool { return e.closed(0) })
	})
}

func TestARequestThatIsToBeSentAgainGoesWhereItsBackendIsNow(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		old, now := r.endpoint(true), r.endpoint(false)
		tab, err := route.New(route.Config{Annotations: retries5xx})
		if err != nil {
			t.Fatal(err)
		}
		m := members(old)
		m.Version = message.HTTP2
		r.serve(Parent{Table: tab, Backends: []Members{m}})
		s := r.get()
		old.call(1).answer(503)
		r.settle() // it pauses
		r.up.Update(Parent{Table: tab, Backends: []Members{members(now)}})
		r.sleep(30 * time.Millisecond)
		now.call(1).answer(200)
		s.wants("200 end\n")
	})
}

func TestBackendsOfOneNameAreOne(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false)
		other := members(e)
		other.Name = "shop/other:80"
		p := Parent{Backends: []Members{members(e), other, members(e)}}
		r.serve(p)
		for range 2 {
			b := r.up.plan.Load().backends
			if len(b) != 3 || b[0] != b[2] || b[0] == b[1] {
				t.Error("a rule that names its parent does not share its balancer")
			}
			r.up.Update(p)
		}
		p.Backends[2].Breaker.MaxFailures = 3
		r.up.Update(p)
		b := r.up.plan.Load().backends
		if b[0] == b[2] {
			t.Error("two breakers are one")
		}
		r.up.Update(p)
		if again := r.up.plan.Load().backends; again[0] != b[0] || again[2] != b[2] {
			t.Error("what is known of endpoints is lost in an update")
		}
	})
}
