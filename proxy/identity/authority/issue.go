package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// Request says what a certificate is to say. The zero value is refused: it names nobody.
type Request struct {
	Names     []string      // DNS names
	SPIFFE    string        // spiffe://...; "": none
	Life      time.Duration // from now on, or from NotBefore; at most until the CA's end
	NotBefore time.Time     // zero: a minute before now
}

// Leaf is a certificate with its key, and whom it trusts.
type Leaf struct {
	Certificate *x509.Certificate
	Key         *ecdsa.PrivateKey
	Anchors     []*x509.Certificate
}

// Issue makes a key (ECDSA P-256) and a certificate for both ends of a
// connection. Its Anchors are the CA; the caller may add others.
func (a *Authority) Issue(r Request, now time.Time) (Leaf, error) {
	template := &x509.Certificate{
		DNSNames:              r.Names,
		NotBefore:             r.NotBefore,
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	if r.SPIFFE != "" {
		id, err := spiffeid.FromString(r.SPIFFE)
		if err != nil {
			return Leaf{}, fmt.Errorf("SPIFFE ID %q: %w", r.SPIFFE, err)
		}
		template.URIs = []*url.URL{id.URL()}
	}
	switch {
	case len(r.Names) == 0 && r.SPIFFE == "":
		return Leaf{}, errors.New("a certificate without a name")
	case r.Life <= 0:
		return Leaf{}, fmt.Errorf("the life of the certificate is not positive: %s", r.Life)
	}
	begin := now
	if r.NotBefore.IsZero() {
		template.NotBefore = now.Add(-backdate)
	} else {
		begin = r.NotBefore
	}
	if template.NotAfter = begin.Add(r.Life); template.NotAfter.After(a.cert.NotAfter) {
		template.NotAfter = a.cert.NotAfter
	}
	if !template.NotAfter.After(template.NotBefore) {
		return Leaf{}, fmt.Errorf("the CA ends before the certificate begins: at %s", a.cert.NotAfter.UTC().Format(time.RFC3339))
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return Leaf{}, err
	}
	cert, err := sign(template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return Leaf{}, fmt.Errorf("issuing a certificate: %w", err)
	}
	return Leaf{cert, key, []*x509.Certificate{a.cert}}, nil
}

// TLS is the form in which crypto/tls takes it.
func (l Leaf) TLS() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{l.Certificate.Raw}, PrivateKey: l.Key, Leaf: l.Certificate}
}

func keyPEM(key crypto.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func certificatePEM(list ...*x509.Certificate) []byte {
	var out []byte
	for _, c := range list {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})...)
	}
	return out
}
