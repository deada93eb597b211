// Package forward serves accepted connections: it asks the router where one
// goes, finds out what it speaks if that is not declared, dials, and relays,
// with an HTTP observer beside the relay where there is something to observe.
// What happened is recorded here and nowhere below. It makes no choice of
// targets and holds no listener.
package forward

import (
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/admin"
	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/l7"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

// Forwarder serves the connections of one direction on several loops. It is a
// conn.Acceptor.
type Forwarder struct {
	cfg           Config
	direction     metrics.Direction
	router        Router
	mediator      Mediator // nil: the router is none
	metrics       *metrics.Metrics
	log           *slog.Logger
	memory        *detect.Memory
	observer      func(protocol.Kind, l7.Recorder) l7.Observer
	vanishedAfter time.Duration
	lanes         map[*conn.Loop]*lane // one a loop, never changed
	detecting     atomic.Int64
	resolving     atomic.Int64 // connections that wait for the router
	held          atomic.Int64 // bytes in the heads of all connections
	shortage      seldom       // lines about failed accepts
	exchanges     []*exchange.Lane
}

// New makes a Forwarder. memory may be shared by several.
func New(cfg Config, d metrics.Direction, router Router, m *metrics.Metrics, log *slog.Logger, memory *detect.Memory, loops []*conn.Loop) *Forwarder {
	f := &Forwarder{cfg: cfg, direction: d, router: router, metrics: m, memory: memory, observer: newObserver, vanishedAfter: vanishedAfter,
		log: log.With("direction", d.String()), lanes: make(map[*conn.Loop]*lane, len(loops))}
	f.mediator, _ = router.(Mediator)
	for i, x := range exchange.NewLanes(cfg.Exchange, loops) {
		ln := &lane{forwarder: f, loop: loops[i], exchanges: x}
		if cfg.AccessLog != nil {
			ln.access.lines = cfg.AccessLog.Lane()
		}
		x.Dialed, x.Panicked, x.Unverified = f.dialed(ln), ln.exchangePanicked, f.unverified(ln)
		f.lanes[ln.loop] = ln
		f.exchanges = append(f.exchanges, x)
	}
	return f
}

// Lanes are the parts of the Forwarder's loops that an exchange.Upstream needs.
func (f *Forwarder) Lanes() []*exchange.Lane { return f.exchanges }

// Accept begins to serve c on l.
func (f *Forwarder) Accept(l *conn.Loop, c conn.Accepted) {
	fl := &flow{lane: f.lanes[l], client: c.Client, fd: c.FD}
	fl.contain((*flow).begin)
}

// AcceptFailed records that the process ran out of something.
func (f *Forwarder) AcceptFailed(err error) {
	f.metrics.AcceptError(errnoName(err))
	if f.shortage.due() {
		f.log.Warn("accepting failed: waiting for descriptors to come back", "err", err)
	}
}

// origin finds where the client wanted to go.
func (f *Forwarder) origin(fd int, client netip.AddrPort) (netip.AddrPort, error) {
	if f.cfg.FixedTarget.IsValid() {
		return f.cfg.FixedTarget, nil
	}
	return conn.OriginalDst(fd, client.Addr())
}

// Open is the number of connections being served.
func (f *Forwarder) Open() int {
	n := int64(0)
	for _, ln := range f.lanes {
		n += ln.open.Load()
	}
	return int(n)
}

// Drain ends what can be ended without loss: HTTP connections close once no
// exchange is open on them. It returns at once; Open tells when all are gone.
func (f *Forwarder) Drain() {
	for l, ln := range f.lanes {
		l.Post(ln.drain)
	}
}

// Connections returns what is being served now, in no order. It asks each loop
// and waits for its answer: the loops have to be running, or to have ended.
func (f *Forwarder) Connections() []admin.Connection {
	var (
		mu  sync.Mutex
		all []admin.Connection
		wg  sync.WaitGroup
	)
	for l, ln := range f.lanes {
		wg.Add(1)
		if !l.Post(func() {
			defer wg.Done()
			mu.Lock()
			defer mu.Unlock()
			ln.each(func(fl *flow) { all = append(all, fl.describe()) })
		}) {
			wg.Done()
		}
	}
	wg.Wait()
	return all
}

// sweepEvery is how often a lane looks after its connections: idle times are
// kept to this precision, which costs less than a timer each.
const sweepEvery = time.Second

// lane holds a Forwarder's connections on one loop; only that loop's goroutine
// touches it, but for open.
type lane struct {
	forwarder *Forwarder
	loop      *conn.Loop
	first     *flow
	draining  bool
	sweeping  conn.Timer
	exchanges *exchange.Lane
	lines     budget
	access    access
	method    []byte                 // of a line of the access log
	rules     map[*route.Action]rule // that requests came under
	decision  metrics.Authorization  // of the policy, the last one
	decided   *metrics.Authorized    // its counters
	open      atomic.Int64
}

func (ln *lane) add(fl *flow) {
	if fl.next = ln.first; fl.next != nil {
		fl.next.prev = fl
	}
	ln.first = fl
	ln.open.Add(1)
	if !ln.sweeping.Active() {
		ln.loop.Start(&ln.sweeping, sweepEvery, ln)
	}
}

func (ln *lane) remove(fl *flow) {
	if fl.prev != nil {
		fl.prev.next = fl.next
	} else {
		ln.first = fl.next
	}
	if fl.next != nil {
		fl.next.prev = fl.prev
	}
	fl.next, fl.prev = nil, nil
	ln.open.Add(-1)
	ln.loop.AddLoad(-1)
}

// each calls f with every connection of the lane.
func (ln *lane) each(f func(*flow)) {
	for fl := ln.first; fl != nil; {
		next := fl.next // fl may end here
		fl.contain(f)
		fl = next
	}
}

// Expired looks after every connection of the lane.
func (ln *lane) Expired(*conn.Timer) {
	ln.each((*flow).lookAfter)
	if ln.first != nil {
		ln.loop.Start(&ln.sweeping, sweepEvery, ln)
	}
}

// Panicked is not of a connection: it ends the process.
func (ln *lane) Panicked(v any, _ []byte) { panic(v) }

func (ln *lane) drain() {
	ln.draining = true
	ln.each((*flow).drainIfIdle)
}

// closeFD closes a descriptor that became no socket, with a RST.
func closeFD(fd int) {
	_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	unix.Close(fd)
}
