package identity

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// maxChain bounds what a peer can have tried: a leaf and its intermediates.
const maxChain = 8

// maxVerified is how many peers are remembered as verified.
const maxVerified = 2048

// anchors are trusted certificates. With trust domains each counts for its own
// domain only, as SPIFFE wants it: a federated domain cannot speak for ours.
type anchors struct {
	pool   *x509.CertPool // without domains
	own    string         // trust domain; "": there are none
	domain map[string]*x509.CertPool
	all    []*x509.Certificate
	sum    [sha256.Size]byte // equal anchors have equal sums

	mu       sync.RWMutex
	verified map[peerKey]*verified
}

// peerKey is a leaf in one of the two roles, which may be allowed differently.
type peerKey struct {
	leaf   [sha256.Size]byte
	server bool
}

// verified is a peer whose chain has been verified once. That holds as long as
// its certificates do, whatever intermediates it sends the next time.
type verified struct {
	names               names
	notBefore, notAfter time.Time // of the whole chain
}

func newAnchors(certs []*x509.Certificate) *anchors {
	a := &anchors{pool: x509.NewCertPool(), all: certs, verified: map[peerKey]*verified{}}
	for _, c := range certs {
		a.pool.AddCert(c)
	}
	a.sum = sumOf("", certs)
	return a
}

// newDomains are the anchors of several trust domains, of which own is the
// proxy's.
func newDomains(own string, domains map[string][]*x509.Certificate) *anchors {
	a := &anchors{own: own, domain: map[string]*x509.CertPool{}, verified: map[peerKey]*verified{}}
	var sums []byte
	list := make([]string, 0, len(domains))
	for d := range domains {
		list = append(list, d)
	}
	slices.Sort(list)
	for _, d := range list {
		a.domain[d] = x509.NewCertPool()
		for _, c := range domains[d] {
			a.domain[d].AddCert(c)
		}
		a.all = append(a.all, domains[d]...)
		sum := sumOf(d, domains[d])
		sums = append(sums, sum[:]...)
	}
	a.sum = sha256.Sum256(append(sums, own...))
	return a
}

// sumOf does not depend on the order of certs.
func sumOf(domain string, certs []*x509.Certificate) [sha256.Size]byte {
	sums := make([][sha256.Size]byte, len(certs))
	for i, c := range certs {
		sums[i] = sha256.Sum256(c.Raw)
	}
	slices.SortFunc(sums, func(a, b [sha256.Size]byte) int { return bytes.Compare(a[:], b[:]) })
	text := []byte(domain + "\x00")
	for _, s := range slices.Compact(sums) {
		text = append(text, s[:]...)
	}
	return sha256.Sum256(text)
}

// verify says whose chain it is, from memory if it can.
func (a *anchors) verify(chain []*x509.Certificate, server bool, now time.Time) (*verified, error) {
	if len(chain) == 0 {
		return nil, errors.New("no certificate was sent")
	}
	key := peerKey{sha256.Sum256(chain[0].Raw), server}
	a.mu.RLock()
	v := a.verified[key]
	a.mu.RUnlock()
	if v != nil && !now.Before(v.notBefore) && !now.After(v.notAfter) {
		return v, nil
	}
	v, err := a.check(chain, server, now)
	if err != nil {
		return nil, err
	}
	a.remember(key, v)
	return v, nil
}

func (a *anchors) remember(key peerKey, v *verified) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.verified) >= maxVerified {
		for old := range a.verified { // any: it is verified again if it comes again
			delete(a.verified, old)
			break
		}
	}
	a.verified[key] = v
}

// check verifies a chain from its leaf up.
func (a *anchors) check(chain []*x509.Certificate, server bool, now time.Time) (*verified, error) {
	leaf := chain[0]
	switch {
	case len(chain) > maxChain:
		return nil, fmt.Errorf("its chain has %d certificates, more than %d", len(chain), maxChain)
	case now.After(leaf.NotAfter):
		return nil, fmt.Errorf("it has expired: since %s", stamp(leaf.NotAfter))
	case now.Before(leaf.NotBefore):
		return nil, fmt.Errorf("it is not valid before %s; does a clock go wrong?", stamp(leaf.NotBefore))
	case leaf.IsCA:
		return nil, errors.New("it is the certificate of a CA, not of a workload")
	}
	n, err := readNames(leaf)
	if err != nil {
		return nil, err
	}
	pool, err := a.poolFor(&n)
	if err != nil {
		return nil, err
	}
	usage := x509.ExtKeyUsageClientAuth
	if server {
		usage = x509.ExtKeyUsageServerAuth
	}
	between := x509.NewCertPool()
	for _, c := range chain[1:] {
		between.AddCert(c)
	}
	chains, err := leaf.Verify(x509.VerifyOptions{
		Roots: pool, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	if err != nil {
		return nil, a.reason(err, leaf, server, now)
	}
	v := &verified{names: n}
	for _, c := range chains {
		if from, to := life(c); to.After(v.notAfter) {
			v.notBefore, v.notAfter = from, to
		}
	}
	return v, nil
}

// poolFor chooses the anchors for a peer. What a federated domain says of DNS
// names, which have no domain, does not count.
func (a *anchors) poolFor(n *names) (*x509.CertPool, error) {
	if a.own == "" {
		return a.pool, nil
	}
	if n.spiffe == "" {
		return nil, errors.New("it has no SPIFFE ID, so that its trust domain is unknown")
	}
	pool := a.domain[n.domain]
	if pool == nil {
		return nil, fmt.Errorf("its trust domain %s is not trusted here", n.domain)
	}
	if n.domain != a.own {
		n.dns = nil
	}
	return pool, nil
}

// life is when all certificates of a chain are valid.
func life(chain []*x509.Certificate) (from, to time.Time) {
	from, to = chain[0].NotBefore, chain[0].NotAfter
	for _, c := range chain[1:] {
		if c.NotBefore.After(from) {
			from = c.NotBefore
		}
		if c.NotAfter.Before(to) {
			to = c.NotAfter
		}
	}
	return from, to
}

// reason says in one line what x509 found, and names what to look at.
func (a *anchors) reason(err error, leaf *x509.Certificate, server bool, now time.Time) error {
	if invalid, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		switch invalid.Reason {
		case x509.Expired:
			return outOfTime(invalid.Cert, now)
		case x509.IncompatibleUsage:
			role := "client"
			if server {
				role = "server"
			}
			return fmt.Errorf("its extended key usage does not let it be a %s (%s auth)", role, role)
		}
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); !ok {
		return err
	}
	for _, c := range a.all {
		if bytes.Equal(c.RawSubject, leaf.RawIssuer) {
			return fmt.Errorf("wrong root: it was issued by %q, and the trust anchor of that name has another key", title(leaf.Issuer.String()))
		}
	}
	return fmt.Errorf("wrong root: it was issued by %q, and no trust anchor (%d) leads there", title(leaf.Issuer.String()), len(a.all))
}

func outOfTime(c *x509.Certificate, now time.Time) error {
	if c == nil {
		return errors.New("a CA certificate of its chain has expired")
	}
	subject := title(c.Subject.String())
	if now.Before(c.NotBefore) {
		return fmt.Errorf("the CA certificate %q is not valid before %s; does a clock go wrong?", subject, stamp(c.NotBefore))
	}
	return fmt.Errorf("the CA certificate %q has expired: since %s", subject, stamp(c.NotAfter))
}

// title is a name, also of one that has none.
func title(name string) string { return cmp.Or(name, "(no name)") }

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
