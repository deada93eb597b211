// Package authority is a small CA for laptops, demos and tests. Its key lies
// unencrypted in a file and it revokes nothing, so that it is not one for
// production: there cert-manager or SPIRE issue certificates.
package authority

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// NotForProduction is in the name of every such CA, for whoever looks at a
// certificate.
const NotForProduction = "meshctl identity init (not for production)"

// The files of an Authority.
const (
	certificateFile = "ca.crt"
	keyFile         = "ca.key"
)

// backdate lets certificates begin earlier, for clocks that are behind.
const backdate = time.Minute

// Authority is a self-signed CA with its key.
type Authority struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// New makes a CA (ECDSA P-256) for a trust domain, as cluster.local, valid from a
// minute before now until life after it.
func New(trustDomain string, life time.Duration, now time.Time) (*Authority, error) {
	domain, err := spiffeid.TrustDomainFromString(trustDomain)
	if err != nil {
		return nil, fmt.Errorf("trust domain %q: %w", trustDomain, err)
	}
	if life <= 0 {
		return nil, fmt.Errorf("the life of the CA is not positive: %s", life)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "root.linkerd." + domain.Name(), Organization: []string{NotForProduction}},
		URIs:                  []*url.URL{domain.ID().URL()},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(life),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	cert, err := sign(template, template, &key.PublicKey, key)
	if err != nil {
		return nil, fmt.Errorf("making the CA's certificate: %w", err)
	}
	return &Authority{cert, key}, nil
}

// sign parses what it has made. The serial number, 20 random octets at most, is x509's.
func sign(template, parent *x509.Certificate, public crypto.PublicKey, key crypto.Signer) (*x509.Certificate, error) {
	der, err := x509.CreateCertificate(rand.Reader, template, parent, public, key)
	if err != nil {
		return nil, err
	}
	return x509.ParseCertificate(der)
}

// Load reads a CA that Write has written.
func Load(dir string) (*Authority, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, certificateFile), filepath.Join(dir, keyFile))
	if err != nil {
		return nil, fmt.Errorf("reading the CA in %s: %w", dir, err)
	}
	signer, ok := pair.PrivateKey.(crypto.Signer)
	if !ok || !pair.Leaf.IsCA {
		return nil, fmt.Errorf("reading the CA in %s: %s is not the certificate of a CA", dir, certificateFile)
	}
	return &Authority{pair.Leaf, signer}, nil
}

// Write writes ca.crt and ca.key (mode 0600) into a directory. It is an error if
// one of them is there.
func (a *Authority) Write(dir string) error {
	key, err := keyPEM(a.key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("writing the CA: %w", err)
	}
	if err := writeNew(filepath.Join(dir, keyFile), key, 0o600); err != nil {
		return err
	}
	if err := writeNew(filepath.Join(dir, certificateFile), certificatePEM(a.cert), 0o644); err != nil {
		// A key without its certificate would be in the way the next time.
		return errors.Join(err, os.Remove(filepath.Join(dir, keyFile)))
	}
	return nil
}

// writeNew never writes over a file: a CA that is replaced makes all that it has
// issued worthless.
func writeNew(path string, text []byte, mode os.FileMode) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if errors.Is(err, os.ErrExist) {
		return fmt.Errorf("%s is there already and is not overwritten: %w", path, os.ErrExist)
	}
	if err != nil {
		return fmt.Errorf("writing the CA: %w", err)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("writing the CA: %w", err)
	}
	return nil
}

// Certificate is the CA's own: the trust anchor.
func (a *Authority) Certificate() *x509.Certificate { return a.cert }
