package forward

import (
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/l4"
	"github.com/meshctl/meshctl/proxy/l7"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// keepaliveAfter is the age at which a dialed connection gets keepalive
// options: short ones need not pay for them.
const keepaliveAfter = 5 * time.Second

// A connection ends when one of its peers has not answered for vanishedAfter
// although bytes are under way to it. That is looked at every lookEvery.
const (
	vanishedAfter = 30 * time.Second
	lookEvery     = 10 * time.Second
)

// startRelay begins to relay with what the client has sent so far.
func (fl *flow) startRelay(b []byte) {
	fl.phase = relaying
	fl.observe()
	fl.relay.Sock = [2]*conn.Socket{&fl.src, &fl.dst}
	fl.relay.Watch = fl
	if len(b) > 0 {
		fl.see(l4.Client, b)
	}
	fl.relay.Start(l4.Client, b)
	fl.letGo()
}

func (fl *flow) observe() {
	f := fl.lane.forwarder
	if fl.observer = f.observer(fl.kind, fl); fl.observer != nil {
		fl.http = f.metrics.HTTP(f.direction, fl.destination(), fl.tlsLabels())
		if fl.lane.access.lines != nil {
			fl.observer.Tell()
		}
	}
}

// newObserver makes what watches a connection of kind k; nil where there is
// nothing to see.
func newObserver(k protocol.Kind, rec l7.Recorder) l7.Observer {
	switch k {
	case protocol.HTTP1:
		return l7.NewH1(rec)
	case protocol.HTTP2:
		return l7.NewH2(rec)
	default:
		return nil
	}
}

// Passed counts bytes and shows them to the observer.
func (fl *flow) Passed(from l4.Side, b []byte, n int) {
	fl.countRead(from, n)
	if b != nil {
		fl.see(from, b)
	}
}

// see shows bytes to whoever wants to look at them.
func (fl *flow) see(from l4.Side, b []byte) {
	if fl.observer != nil {
		if !fl.observer.Passive() {
			fl.observer.Feed(l7.Side(from), b, fl.lane.loop.Now())
			fl.noteLost()
		}
		return
	}
	if fl.detected == "" && fl.bytes[from] == uint64(len(b)) { // the side's first bytes
		if fl.detected = detect.Name(b, from == l4.Server); fl.detected != "" {
			fl.recordDetected()
		}
	}
}

// Wrote counts bytes that a side took.
func (fl *flow) Wrote(to l4.Side, n int) {
	if to == l4.Client {
		fl.srcTCP.Write(n)
	} else {
		fl.dstTCP.Write(n)
	}
}

// Splice allows bytes to pass unseen when nobody looks at them.
func (fl *flow) Splice(l4.Side) bool { return fl.observer == nil || fl.observer.Passive() }

// Ended tells the observer of a FIN.
func (fl *flow) Ended(from l4.Side) {
	if fl.observer != nil && !fl.observer.Passive() {
		fl.observer.End(l7.Side(from), fl.lane.loop.Now())
		fl.noteLost()
	}
}

// Finished ends the flow.
func (fl *flow) Finished(from l4.Side, err syscall.Errno) {
	if fl.observer != nil && !fl.observer.Passive() {
		fl.observer.Abort(fl.lane.loop.Now())
	}
	fl.over(from, err)
}

func (fl *flow) countRead(from l4.Side, n int) {
	fl.bytes[from] += uint64(n)
	fl.last = fl.lane.loop.Now()
	if from == l4.Client {
		if fl.srcTCP != nil { // else counted once it is known how
			fl.srcTCP.Read(n)
		}
	} else {
		fl.dstTCP.Read(n)
	}
}

// drainIfIdle closes an HTTP connection on which no exchange is open.
func (fl *flow) drainIfIdle() {
	if fl.phase == mediating && !fl.draining {
		fl.draining = true
		fl.server.Drain()
		return
	}
	if !fl.idle() {
		return
	}
	// A request may be there that no event has told of yet.
	if fl.relay.Ready(l4.Client, conn.Readable); fl.idle() {
		fl.relay.Close()
	}
}

// idle reports whether closing now takes nothing from anybody, as far as is known.
func (fl *flow) idle() bool {
	return fl.phase == relaying && fl.observer != nil && fl.observer.Idle() && fl.relay.Held() == 0
}

// lookAfter is called about once a second.
func (fl *flow) lookAfter() {
	if fl.phase == mediating {
		fl.lookAfterServed()
		return
	}
	if fl.phase != relaying {
		return
	}
	now, cfg := fl.lane.loop.Now(), &fl.lane.forwarder.cfg
	if !fl.keepalive && now-fl.started > keepaliveAfter {
		fl.keepalive = true
		conn.Keepalive(fl.dst.FD())
	}
	if now-fl.looked >= lookEvery {
		fl.looked = now
		if fl.vanished() {
			return
		}
	}
	idle := now - fl.last
	switch {
	case cfg.HalfCloseTimeout > 0 && idle > cfg.HalfCloseTimeout && fl.relay.HalfClosed():
	case cfg.IdleTimeout > 0 && idle > cfg.IdleTimeout && fl.opaque():
	default:
		return
	}
	fl.relay.Abort(l4.Client, unix.ETIMEDOUT)
}

// vanished ends a connection one of whose peers does not answer any more.
func (fl *flow) vanished() bool {
	for s, sock := range fl.relay.Sock {
		if sock.Vanished(fl.lane.forwarder.vanishedAfter) {
			fl.relay.Abort(l4.Side(s), unix.ETIMEDOUT)
			return true
		}
	}
	return false
}

// opaque reports whether nothing is known of what passes: idle timeouts are
// for such connections, not for HTTP, whose exchanges may take their time.
func (fl *flow) opaque() bool { return fl.observer == nil }
