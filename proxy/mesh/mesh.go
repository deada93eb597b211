// Package mesh is mTLS between proxies: TLS 1.3 on sockets of an event loop, with
// identities that both sides verify, and the transport header in front of what a
// client sends. It computes handshakes on the loops, a little at a time, and
// knows nothing of what the bytes mean.
package mesh

import (
	"crypto/tls"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/identity"
	"github.com/meshctl/meshctl/proxy/mesh/header"
)

// Endpoint is how an endpoint is reached by mTLS. The zero value: it is not
// meshed.
type Endpoint struct {
	ID         string // the identity that its certificate has to have
	ServerName string // SNI
	// Port is where it takes transport headers; 0: mTLS on the application's own
	// port, without a header.
	Port uint16
}

// IsZero reports that the endpoint is not meshed.
func (e Endpoint) IsZero() bool { return e.ID == "" }

// Addr is where a connection to the application at app goes.
func (e Endpoint) Addr(app netip.AddrPort) netip.AddrPort {
	if e.Port == 0 {
		return app
	}
	return netip.AddrPortFrom(app.Addr(), e.Port)
}

// Mesh makes TLS connections with one identity. It is safe for concurrent use.
type Mesh struct {
	source identity.Source
	server atomic.Pointer[serverConfigs]

	mu      sync.Mutex
	clients map[client]*clientConfig
}

// New makes a Mesh.
func New(source identity.Source) *Mesh {
	return &Mesh{source: source, clients: map[client]*clientConfig{}}
}

// Name is the server name by which clients address this proxy; "" while there is
// no certificate.
func (m *Mesh) Name() string {
	s, err := m.source.Current()
	if err != nil {
		return ""
	}
	return s.Name()
}

// serverConfigs are for one generation of the identity. A new one has new keys
// for session tickets, so that no session outlives what it was verified with.
type serverConfigs struct {
	snapshot *identity.Snapshot
	direct   *tls.Config // on the proxy's own port: with a transport header
	plain    *tls.Config // on an application's port
}

func (m *Mesh) servers() (*serverConfigs, error) {
	s, err := m.source.Current()
	if err != nil {
		return nil, err
	}
	if c := m.server.Load(); c != nil && c.snapshot == s {
		return c, nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.server.Load(); c != nil && c.snapshot == s {
		return c, nil
	}
	c := &serverConfigs{snapshot: s, plain: base(), direct: base()}
	for _, cfg := range []*tls.Config{c.plain, c.direct} {
		cfg.Certificates = []tls.Certificate{*s.Certificate()}
		cfg.ClientAuth = tls.RequestClientCert
		cfg.VerifyConnection = func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 && cfg == c.direct {
				return errNoCertificate
			}
			_, err := c.peer(cs)
			return err
		}
	}
	c.direct.NextProtos = []string{header.ALPN}
	m.server.Store(c)
	return c, nil
}

// peer verifies a client that shows a certificate.
func (c *serverConfigs) peer(cs tls.ConnectionState) (p Peer, err error) {
	p = Peer{ALPN: cs.NegotiatedProtocol, Resumed: cs.DidResume}
	if len(cs.PeerCertificates) > 0 {
		p.ID, err = c.snapshot.VerifyPeer(cs.PeerCertificates, "", false, time.Now())
	}
	return p, err
}

// base is what both roles share. What crypto/tls would verify is verified by
// identity, for each connection, resumed ones too.
func base() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, DynamicRecordSizingDisabled: true}
}

// Server begins the handshake with a client whose first bytes, head, were read
// from sock already. direct: on the proxy's own port, where a client has to show a
// certificate and to agree on a transport header. See begin.
func (m *Mesh) Server(sock *conn.Socket, head []byte, direct bool, owner Owner, done func(*Session, error)) *Handshake {
	return begin(sock, head, func(w *wire) (*tls.Conn, verifier, error) {
		c, err := m.servers()
		if err != nil {
			return nil, nil, err
		}
		cfg := c.plain
		if direct {
			cfg = c.direct
		}
		return tls.Server(w, cfg), func(cs tls.ConnectionState) (Peer, error) {
			if direct && cs.NegotiatedProtocol != header.ALPN {
				return Peer{}, errNoHeader
			}
			return c.peer(cs)
		}, nil
	}, owner, done)
}

// errNoCertificate is linkerd2-proxy's word for it.
var errNoCertificate = errors.New("direct connections must be mutually authenticated")

// errNoHeader is that of a client that did not offer header.ALPN.
var errNoHeader = errors.New("direct connections require transport header negotiation")

// client is one way to an endpoint: its session tickets are worth something there
// only.
type client struct {
	addr netip.AddrPort
	to   Endpoint
}

// clientConfig is for one generation of the identity.
type clientConfig struct {
	snapshot *identity.Snapshot
	config   *tls.Config
	used     time.Time
}

const (
	// clientsMost is how many clientConfigs are kept before those unused for
	// clientIdle are dropped.
	clientsMost = 1024
	clientIdle  = 10 * time.Minute
)

func (m *Mesh) client(k client, now time.Time) (*clientConfig, error) {
	s, err := m.source.Current()
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c := m.clients[k]; c != nil && c.snapshot == s {
		c.used = now
		return c, nil
	}
	if len(m.clients) >= clientsMost {
		for k, c := range m.clients {
			if now.Sub(c.used) > clientIdle {
				delete(m.clients, k)
			}
		}
	}
	c := &clientConfig{snapshot: s, config: base(), used: now}
	c.config.ServerName = k.to.ServerName
	c.config.InsecureSkipVerify = true // VerifyConnection does: the identity need not be the server name
	c.config.VerifyConnection = func(cs tls.ConnectionState) error {
		_, err := s.VerifyPeer(cs.PeerCertificates, k.to.ID, true, time.Now())
		return err
	}
	own := s.Certificate()
	c.config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return own, nil }
	c.config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
	if k.to.Port != 0 {
		c.config.NextProtos = []string{header.ALPN}
	}
	m.clients[k] = c
	return c, nil
}

// Client begins the handshake with the endpoint at addr, to which sock is
// connected, and sends h behind it where the endpoint takes transport headers.
// See begin.
func (m *Mesh) Client(sock *conn.Socket, addr netip.AddrPort, to Endpoint, h header.Header, owner Owner, done func(*Session, error)) *Handshake {
	return begin(sock, nil, func(w *wire) (*tls.Conn, verifier, error) {
		c, err := m.client(client{addr, to}, time.Now())
		if err != nil {
			return nil, nil, err
		}
		return tls.Client(w, c.config), func(cs tls.ConnectionState) (Peer, error) {
			if to.Port != 0 && cs.NegotiatedProtocol != header.ALPN {
				return Peer{}, errNoHeader
			}
			return Peer{ID: to.ID, ALPN: cs.NegotiatedProtocol, Resumed: cs.DidResume}, nil
		}, nil
	}, owner, func(s *Session, err error) {
		if err == nil && to.Port != 0 {
			s.Write(h.Append(make([]byte, 0, 64))) // an error stays, and is the next call's
		}
		done(s, err)
	})
}

// Verified reports whether the peer has shown a certificate.
func (p Peer) Verified() bool { return p.ID != "" }
