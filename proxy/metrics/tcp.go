package metrics

import (
	"sync/atomic"
	"time"
)

type tcpKey struct {
	direction Direction
	peer      Peer
	target    target
	tls       TLSLabels
}

func (k tcpKey) folded() bool { return k.target.folded }

func (k tcpKey) fold() tcpKey {
	k.target = target{folded: true}
	k.tls = k.tls.folded()
	return k
}

// TCP counts the connections of one direction, peer, target and TLS state. It
// is shared by all of them and safe for concurrent use; Read and Write are one
// atomic addition each.
type TCP struct {
	series
	key   tcpKey
	owner *Metrics

	opened, read, written atomic.Uint64
	closed                [len(errnos)]atomic.Uint64
}

// TCP returns the counters for one connection and takes a reference, which
// Close (or Release, for a connection that never opened) gives back. peer Src
// is the connection that was accepted, Dst the one that was dialed. dst is the
// original destination for both; v4-mapped addresses are unwrapped.
func (m *Metrics) TCP(d Direction, peer Peer, dst Destination, tls TLSLabels) *TCP {
	tls = tls.clean()
	tls.SNI = m.sni.admit(tls.SNI)
	return m.tcp.acquire(tcpKey{direction: d, peer: peer, target: toTarget(dst), tls: tls})
}

func (m *Metrics) newTCP(k tcpKey) *TCP { return &TCP{key: k, owner: m} }

// Open counts the connection as open, until Close.
func (t *TCP) Open() { t.opened.Add(1) }

// Read counts n bytes read from that peer. n <= 0 counts nothing.
func (t *TCP) Read(n int) {
	if n > 0 {
		t.read.Add(uint64(n))
	}
}

// Write counts n bytes written to that peer. n <= 0 counts nothing.
func (t *TCP) Write(n int) {
	if n > 0 {
		t.written.Add(uint64(n))
	}
}

// Close counts the end of a connection that was open for took, and gives the
// reference back: call it once a connection, after Open. errno is the name of
// the error that ended it (ECONNRESET ...), or "" for a clean close.
func (t *TCP) Close(errno string, took time.Duration) {
	t.closed[errnoIndex(errno)].Add(1)
	t.owner.durations[t.key.direction.slot()][t.key.peer.slot()].observe(took)
	t.Release()
}

// Release gives the reference back and counts nothing.
func (t *TCP) Release() { t.owner.tcp.release(t, t.owner.cfg.Now()) }

// errnos are the values of the label errno: what connect(2), read(2), write(2)
// and splice(2) say of a connection. The first is a clean close, the last
// whatever is not in the list.
var errnos = [...]string{
	"", "ECONNRESET", "EPIPE", "ETIMEDOUT", "ECONNREFUSED", "ECONNABORTED",
	"EHOSTUNREACH", "ENETUNREACH", "EADDRNOTAVAIL", "ENOTCONN",
	"EMFILE", "ENFILE", "ENOBUFS", "ENOMEM", "EACCES", "EPERM", "EPROTO", "EIO", other,
}

func errnoIndex(errno string) int {
	for i := range errnos {
		if errnos[i] == errno {
			return i
		}
	}
	return len(errnos) - 1
}

// liveSNI returns the server names that live series carry.
func (m *Metrics) liveSNI() map[string]struct{} {
	inUse := make(map[string]struct{})
	for _, t := range m.tcp.list() {
		inUse[t.key.tls.SNI] = struct{}{}
	}
	for _, h := range m.http.list() {
		inUse[h.key.tls.SNI] = struct{}{}
	}
	return inUse
}

// collect sends the tcp_* families that have a target.
func (t *TCP) collect(p *page, send sender) {
	l := labels{}.with("direction", t.key.direction.String()).with("peer", t.key.peer.String())
	l = t.key.tls.appendTo(t.key.target.appendTo(l)).sorted()
	var closed uint64 // read before opened, so that open is never below 0
	for i := range t.closed {
		if n := t.closed[i].Load(); n > 0 {
			closed += n
			send.counter(p.tcpCloseTotal, n, l.with("errno", errnos[i]).sorted())
		}
	}
	opened := t.opened.Load()
	send.counter(p.tcpOpenTotal, opened, l)
	send.gauge(p.tcpOpenConnections, int64(opened-closed), l)
	send.counter(p.tcpReadBytesTotal, t.read.Load(), l)
	send.counter(p.tcpWriteBytesTotal, t.written.Load(), l)
}
