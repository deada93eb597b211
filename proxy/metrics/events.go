package metrics

import (
	"strconv"
	"time"

	"github.com/meshctl/meshctl/proxy/protocol"
)

// tallies are the families that count things that happen about once a
// connection.
type tallies struct {
	detectResults  [2]*tally // by direction
	detect         *tally
	errors         [2]*tally // by direction
	outboundChosen *tally
	detectedNames  *tally
	earlyDials     *tally
	refused        *tally
	observerLost   *tally
	acceptErrors   *tally
	headers        *tally
	retries        *tally
	answers        *tally
	bypasses       *tally
	capped         []*tally // all of these
}

// words is how many label sets a tally has room for whose labels are constants
// of the program.
const words = 200

func newTallies(p *page, cfg Config) tallies {
	var t tallies
	add := func(f *family, limit int, first ...values) *tally {
		n := newTally(f, limit, first...)
		t.capped = append(t.capped, n)
		return n
	}
	results := []values{{"not_http"}, {"http/1"}, {"http/2"}, {"read_timeout"}, {"error"}}
	t.detectResults[Inbound.slot()] = add(p.inboundDetectResults, words, results...)
	t.detectResults[Outbound.slot()] = add(p.outboundDetectResults, words, results...)
	t.detect = add(p.detectTotal, cfg.MaxPorts)
	t.errors[Inbound.slot()] = add(p.inboundErrors, words)
	t.errors[Outbound.slot()] = add(p.outboundErrors, words)
	t.outboundChosen = add(p.outboundProtocol, words, values{"http/1"}, values{"http/2"}, values{"detect"}, values{"opaq"}, values{"tls"})
	t.detectedNames = add(p.detectedNames, words)
	t.earlyDials = add(p.earlyDials, words)
	t.refused = add(p.refusedTotal, words)
	t.observerLost = add(p.observerLost, words)
	t.acceptErrors = add(p.acceptErrors, words)
	t.headers = add(p.transportHeaders, cfg.MaxPorts)
	t.retries = add(p.retries, cfg.MaxPorts)
	t.answers = add(p.answers, words)
	t.bypasses = add(p.bypasses, cfg.MaxPorts)
	return t
}

// Results of detection, as Detected takes them. All but ResultTLS are values of
// Linkerd's label result; it has no word for TLS there and says not_http.
const (
	ResultNotHTTP     = "not_http"
	ResultHTTP1       = "http/1"
	ResultHTTP2       = "http/2"
	ResultTLS         = "tls"
	ResultReadTimeout = "read_timeout" // nothing decided in time: opaque
	ResultError       = "error"        // the connection ended before anything was decided
)

// Detected counts the end of the detection of one connection: its result (one
// of the constants), the reason, a word of the proxy's, and how long it took
// from accept. port is the original destination's.
func (m *Metrics) Detected(d Direction, port uint16, result, reason string, took time.Duration) {
	m.detect.add(values{d.String(), detectedAs(result), reason, strconv.Itoa(int(port))})
	if result == ResultTLS {
		result = ResultNotHTTP
	}
	m.detectResults[d.slot()].add(values{result})
	m.detectDuration[d.slot()].observe(took)
}

// detectedAs returns the protocol that a connection with this result is served as.
func detectedAs(result string) string {
	switch result {
	case ResultNotHTTP, ResultReadTimeout:
		return protocol.Opaque.String()
	case ResultHTTP1:
		return protocol.HTTP1.String()
	case ResultHTTP2:
		return protocol.HTTP2.String()
	case ResultTLS:
		return protocol.TLS.String()
	}
	return protocol.Unknown.String()
}

// DetectedName counts a connection whose payload was recognised for people:
// name is one of detection's closed set (mysql, redis ...); "" counts nothing.
func (m *Metrics) DetectedName(d Direction, name string) {
	if name != "" {
		m.detectedNames.add(values{d.String(), name})
	}
}

// OutboundProtocol counts an outbound connection by what was known of its
// protocol before a byte was read: http/1, http/2, detect, opaq or tls, as
// Linkerd names them.
func (m *Metrics) OutboundProtocol(p string) { m.outboundChosen.add(values{p}) }

// TCPError counts a connection that failed in the proxy, by Linkerd's words for
// it: i/o, failfast, loadshed, unexpected ...
func (m *Metrics) TCPError(d Direction, err string) { m.errors[d.slot()].add(values{err}) }

// TransportHeader counts a connection of another proxy by what its transport
// header says: the session's protocol ("" for none), the port, the name ("" but
// for gateways), and who it is.
func (m *Metrics) TransportHeader(session string, port uint16, name, clientID string) {
	m.headers.add(values{session, strconv.Itoa(int(port)), name, clientID})
}

// EarlyDial counts a connection dialed while its client was silent, by what came
// of it: server_first, client_first, timeout, error ...
func (m *Metrics) EarlyDial(d Direction, outcome string) {
	m.earlyDials.add(values{d.String(), outcome})
}

// Refused counts a connection that was closed without being served:
// no_original_destination, own_listener ...
func (m *Metrics) Refused(d Direction, reason string) {
	m.refused.add(values{d.String(), reason})
}

// AcceptError counts a failed accept(2) by the name of its errno.
func (m *Metrics) AcceptError(errno string) { m.acceptErrors.add(values{errno}) }

// ObserverLost counts a connection of protocol k whose observer stopped
// counting. reason is one of the observer's constants.
func (m *Metrics) ObserverLost(k protocol.Kind, reason string) {
	m.observerLost.add(values{k.String(), reason})
}
