package identity

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"
)

// Snapshot is one certificate with its trust anchors. It never changes, but for
// the memory of which peers have been verified, which is safe for concurrent use.
type Snapshot struct {
	cert       tls.Certificate
	names      names
	anchors    *anchors
	generation uint64
	until      time.Time // when the first certificate of the own chain ends
	expired    error     // made beforehand: it is asked for every connection
}

// NewSnapshot is for tests and tools: a Source makes its own. cert has its chain
// and key; anchors are trusted whatever the names. It is an error if a peer with
// the same anchors would refuse the certificate at the time now.
func NewSnapshot(cert tls.Certificate, anchors []*x509.Certificate, now time.Time) (*Snapshot, error) {
	return newSnapshot(cert, newAnchors(anchors), now)
}

// newSnapshot holds the own certificate to what is asked of peers, in both roles.
func newSnapshot(cert tls.Certificate, a *anchors, now time.Time) (*Snapshot, error) {
	chain, err := parseChain(&cert)
	if err != nil {
		return nil, err
	}
	v, err := a.verify(chain, true, now)
	if err == nil {
		_, err = a.verify(chain, false, now)
	}
	if err != nil {
		return nil, err
	}
	s := &Snapshot{cert: cert, names: v.names, anchors: a, until: v.notAfter}
	s.expired = fmt.Errorf("%w: since %s", ErrExpired, stamp(s.until))
	return s, nil
}

func parseChain(cert *tls.Certificate) ([]*x509.Certificate, error) {
	if len(cert.Certificate) == 0 {
		return nil, errors.New("there is no certificate")
	}
	var chain []*x509.Certificate
	for _, der := range cert.Certificate {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		chain = append(chain, c)
	}
	cert.Leaf = chain[0]
	return chain, nil
}

// Name is the proxy's own DNS name: the server name by which other proxies
// address it. Empty if the certificate has none.
func (s *Snapshot) Name() string {
	if len(s.names.dns) == 0 {
		return ""
	}
	return s.names.dns[0]
}

// ID is how peers name the proxy in metrics and policies: its DNS name, else its
// SPIFFE ID.
func (s *Snapshot) ID() string { return s.names.id() }

// SPIFFE is the SPIFFE ID; empty if the certificate has none.
func (s *Snapshot) SPIFFE() string { return s.names.spiffe }

// Certificate is the chain and key to present, with Leaf parsed. It is shared:
// the caller changes nothing in it.
func (s *Snapshot) Certificate() *tls.Certificate { return &s.cert }

// Anchors are the trusted certificates, for people to look at.
func (s *Snapshot) Anchors() []*x509.Certificate { return slices.Clone(s.anchors.all) }

// Generation grows with each change of the certificate or the anchors. It
// begins with 1; a Snapshot of no Source has 0.
func (s *Snapshot) Generation() uint64 { return s.generation }

// NotAfter is when the certificate expires.
func (s *Snapshot) NotAfter() time.Time { return s.cert.Leaf.NotAfter }

// VerifyPeer verifies the certificates that a peer sent, its leaf first, and
// returns whom they name. The chain has to end at an anchor and be valid at the time
// now; extended key usages, where there are any, have to allow the role: server says
// that the peer is one. If want is not empty, a DNS name or the SPIFFE ID of the
// leaf has to be exactly that, and it is returned; else the leaf's first
// DNS name, else its SPIFFE ID. The error says in one line what is wrong.
//
// A leaf that was verified before costs its hash and a look into a map, so that
// every connection can ask, also a resumed one.
func (s *Snapshot) VerifyPeer(chain []*x509.Certificate, want string, server bool, now time.Time) (id string, err error) {
	v, err := s.anchors.verify(chain, server, now)
	switch {
	case err != nil:
		return "", fmt.Errorf("the peer's certificate%s is refused: %w", of(chain), err)
	case want == "":
		return v.names.id(), nil
	case v.names.has(want):
		return want, nil
	}
	return "", fmt.Errorf("the peer is %s, wanted %s", v.names, want)
}

// of names a leaf that could not be verified, as far as it says who it is.
func of(chain []*x509.Certificate) string {
	if len(chain) == 0 {
		return ""
	}
	if n, err := readNames(chain[0]); err == nil {
		return " of " + n.String()
	}
	return ""
}

// same reports whether another Snapshot has the same chain and anchors. A key
// belongs to its leaf.
func (s *Snapshot) same(o *Snapshot) bool {
	return s.anchors.sum == o.anchors.sum && slices.EqualFunc(s.cert.Certificate, o.cert.Certificate, bytes.Equal)
}
