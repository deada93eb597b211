package forward

import (
	"log/slog"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/detect"
	"github.com/meshctl/meshctl/proxy/l4"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// heldMost is how many bytes of clients whose protocol is not known yet a
// Forwarder holds. One may make it hold detect.MaxHead, and MaxDetecting of them
// must not take the memory of everybody: beyond this the rest is opaque.
const heldMost = 16 << 20

// readHead reads the client's first bytes until they say what it speaks.
func (fl *flow) readHead() {
	for {
		buf := fl.lane.loop.Scratch
		n, e := fl.src.Read(buf)
		switch {
		case e == unix.EAGAIN:
			fl.waitForClient()
			return
		case e != 0:
			fl.end(l4.Client, e)
			return
		case n == 0:
			fl.clientEnded()
			return
		}
		fl.countRead(l4.Client, n)
		b := buf[:n]
		if fl.head != nil {
			fl.head = append(fl.head, b...)
			b = fl.head
		}
		if !fl.sniff(b) {
			return
		}
		if n < len(buf) && fl.src.Drained() {
			fl.waitForClient()
			return
		}
	}
}

// sniff looks at what the client has sent so far, and reports whether more is
// needed.
func (fl *flow) sniff(b []byte) bool {
	switch r := detect.Sniff(b); {
	case !r.More && fl.ours(r):
		fl.secure(b)
		return false
	case !r.More:
		fl.decide(r, b)
		return false
	}
	fl.hold(b)
	if fl.crowded() {
		fl.decide(detect.Result{Kind: protocol.Opaque, Reason: detect.ReasonCrowded}, fl.head)
		return false
	}
	return true
}

// hold keeps b, which may lie in the loop's scratch buffer.
func (fl *flow) hold(b []byte) {
	if len(b) > 0 && fl.head == nil {
		fl.head = append([]byte(nil), b...)
	}
}

// crowded counts what fl holds and reports whether all together hold too much.
func (fl *flow) crowded() bool {
	more := len(fl.head) - fl.held
	fl.held += more
	return fl.lane.forwarder.held.Add(int64(more)) > heldMost
}

// letGo drops what fl holds.
func (fl *flow) letGo() {
	fl.head = nil
	fl.lane.forwarder.held.Add(int64(-fl.held))
	fl.held = 0
}

// waitForClient starts what ends the wait: the deadline, and, while the client
// is silent, the early dial. A client that has begun to speak is waited for.
func (fl *flow) waitForClient() {
	f, loop := fl.lane.forwarder, fl.lane.loop
	if fl.head != nil && fl.link == unlinked {
		loop.Cancel(&fl.dialTimer)
	}
	if fl.waiting {
		return
	}
	if !fl.beginWaiting() {
		fl.decide(detect.Result{Kind: protocol.Opaque, Reason: detect.ReasonCrowded}, fl.head)
		return
	}
	loop.StartAt(&fl.deadline, fl.started+fl.detectFor(), fl)
	if fl.declared || fl.head != nil || !fl.route.Early || f.cfg.EarlyDialAfter <= 0 {
		return
	}
	if fl.hasten || f.memory.Has(fl.route.Target, time.Now()) {
		fl.dialEarly()
		return
	}
	loop.Start(&fl.dialTimer, f.cfg.EarlyDialAfter, fl)
}

// detectFor is how long the client may take, from accept.
func (fl *flow) detectFor() time.Duration {
	if p := fl.port(); p != nil && p.DetectTimeout > 0 {
		return p.DetectTimeout
	}
	return fl.lane.forwarder.cfg.DetectTimeout
}

// beginWaiting counts the connection among those whose clients have not come to the
// point; false: there are too many.
func (fl *flow) beginWaiting() bool {
	f := fl.lane.forwarder
	if n := f.detecting.Add(1); f.cfg.MaxDetecting > 0 && n > int64(f.cfg.MaxDetecting) {
		f.detecting.Add(-1)
		return false
	}
	fl.waiting = true
	f.metrics.Detecting(1)
	return true
}

func (fl *flow) doneWaiting() {
	if fl.waiting {
		fl.waiting = false
		fl.lane.forwarder.detecting.Add(-1)
		fl.lane.forwarder.metrics.Detecting(-1)
	}
}

// clientEnded decides at the client's FIN from what there is. Without a byte
// there is nobody to dial for, unless the server is there already and may have
// something to say.
func (fl *flow) clientEnded() {
	if len(fl.head) > 0 || fl.link == linked {
		fl.decide(detect.AtEnd(fl.head), fl.head)
		return
	}
	fl.kind, fl.reason = protocol.Opaque, detect.ReasonEOF
	if !fl.declared {
		fl.recordDetection()
	}
	fl.src.Close()
	fl.dst.Close()
	fl.over(l4.Client, 0)
}

// detectTimeout fails open: whatever this is, it is relayed as TCP. But who has
// begun to show an identity has to go on.
func (fl *flow) detectTimeout() {
	if fl.phase == securing || fl.phase == directed {
		fl.insecure("tls handshake", errTooSlow)
		return
	}
	if !fl.declared {
		fl.logTimeout()
	}
	fl.decide(detect.Result{Kind: protocol.Opaque, Reason: detect.ReasonTimeout}, fl.head)
}

// serverSpoke handles a server that has spoken, or ended, before its client.
func (fl *flow) serverSpoke() {
	var b [1]byte
	n, e := fl.dst.Peek(b[:])
	reason := detect.ReasonServerEnded
	switch {
	case e == unix.EAGAIN:
		return
	case e != 0:
		fl.kind, fl.reason = protocol.Opaque, reason
		fl.recordDetection()
		fl.end(l4.Server, e) // the peek took the RST: nobody would see it again
		return
	case n > 0:
		reason = detect.ReasonServerFirst
		fl.learn()
	}
	fl.decide(detect.Result{Kind: protocol.Opaque, Reason: reason}, fl.head)
}

// learn remembers a target that speaks first.
func (fl *flow) learn() {
	f := fl.lane.forwarder
	if len(fl.head) > 0 {
		return // the client had begun
	}
	f.memory.Add(fl.route.Target, time.Now())
	f.metrics.SetServerFirstTargets(f.memory.Len())
}

// forget drops a target that turned out to wait for its client.
func (fl *flow) forget() {
	f := fl.lane.forwarder
	if f.memory.Len() == 0 {
		return
	}
	f.memory.Forget(fl.route.Target)
	f.metrics.SetServerFirstTargets(f.memory.Len())
}

// decide ends detection. b is what the client has sent so far.
func (fl *flow) decide(r detect.Result, b []byte) {
	switch {
	case fl.declared:
		r = fl.asDeclared(r)
	case r.Kind == protocol.Opaque && r.Reason == detect.ReasonBytes && fl.mediates() && detect.Malformed(b):
		r.Kind = protocol.HTTP1 // and is answered 400: an error is no way around routes
	}
	fl.kind, fl.reason, fl.sni, fl.alpn = r.Kind, r.Reason, r.SNI, r.ALPN
	fl.countClient()
	if !fl.kind.HTTP() && fl.strict() {
		fl.doneWaiting()
		fl.recordDetection()
		fl.lane.log(slog.LevelInfo, "connection denied: only HTTP is let through here", fl.about(slog.String("reason", fl.reason.String()))...)
		fl.denied()
		return
	}
	fl.lane.loop.Cancel(&fl.deadline)
	if fl.link == unlinked {
		fl.lane.loop.Cancel(&fl.dialTimer)
	}
	fl.doneWaiting()
	if !fl.declared {
		fl.recordDetection()
		if fl.kind.HTTP() {
			fl.forget()
		}
	}
	fl.know(b)
}

// asDeclared is what a client speaks on a port that is declared HTTP/1: that, well
// or badly, unless it begins with the preface of HTTP/2. Where HTTP/2 is declared
// it is that.
func (fl *flow) asDeclared(r detect.Result) detect.Result {
	if r.Kind == protocol.HTTP2 || fl.route.Kind == protocol.HTTP2 {
		return detect.Result{Kind: protocol.HTTP2, Reason: detect.ReasonDeclared}
	}
	return detect.Result{Kind: protocol.HTTP1, Reason: detect.ReasonDeclared}
}
