package webhook

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"slices"
	"sync/atomic"
	"time"
)

// Certificate is one that signs itself, and is replaced long before it ends. Trust
// has the API server take it; it is not used before.
type Certificate struct {
	Names []string // DNS names by which the API server calls
	Life  time.Duration
	// Trust is given the certificate in PEM, and returns once the API server will take
	// it.
	Trust func(ctx context.Context, bundle []byte) error
	// Again is how often it is looked whether it is still trusted; 0: a minute.
	Again time.Duration
	// Settle is how long the API server may take to notice what it has been told: so
	// long a new certificate is not used if there is another; 0: 10 s.
	Settle time.Duration
	Log    *slog.Logger

	current atomic.Pointer[tls.Certificate]
}

// Current is the certificate in use; nil: none yet. It is a tls.Config's
// GetCertificate.
func (c *Certificate) Current(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	cert := c.current.Load()
	if cert == nil {
		return nil, fmt.Errorf("there is no certificate yet that the API server trusts")
	}
	return cert, nil
}

// Ready says why the API server cannot call yet; nil: it can.
func (c *Certificate) Ready() error {
	_, err := c.Current(nil)
	return err
}

// Run makes certificates until ctx ends: the next one after two thirds of a life.
// Where trust cannot be had it is tried again, with the old one in use.
func (c *Certificate) Run(ctx context.Context) {
	if c.Again <= 0 {
		c.Again = time.Minute
	}
	if c.Settle <= 0 {
		c.Settle = 10 * time.Second
	}
	pause := time.Second
	var next *tls.Certificate
	var told time.Time // since when the API server knows next
	for {
		now := c.current.Load()
		if next == nil && (now == nil || time.Until(now.Leaf.NotAfter) < c.Life/3) {
			var err error
			if next, err = SelfSigned(c.Names, c.Life, time.Now()); err != nil {
				c.Log.Error("making a certificate", "err", err)
			}
		}
		wait := c.Again
		if err := c.Trust(ctx, bundleOf(now, next)); err != nil && ctx.Err() == nil {
			c.Log.Warn("the API server does not trust the webhook's certificate yet", "err", err, "again_in", pause)
			wait, pause = pause, min(2*pause, time.Minute)
		} else if err == nil {
			pause = time.Second
			if next != nil && told.IsZero() {
				told = time.Now()
			}
			switch left := c.Settle - time.Since(told); {
			case next == nil:
			case now != nil && left > 0:
				wait = min(wait, left)
			default:
				c.current.Store(next)
				next, told = nil, time.Time{}
			}
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

func bundleOf(list ...*tls.Certificate) []byte {
	var out []byte
	for _, c := range list {
		if c != nil {
			out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})...)
		}
	}
	return out
}

// SelfSigned makes a server's certificate (ECDSA P-256) that is its own anchor.
func SelfSigned(names []string, life time.Duration, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "meshctl webhook"}, DNSNames: names,
		NotBefore: now.Add(-time.Minute), NotAfter: now.Add(life), IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// maxAnchors is how many certificates a bundle has at most: replicas that come and
// go must not make it grow without end.
const maxAnchors = 32

// Merge adds certificates to a bundle that other replicas write, too, and takes out
// what has expired and what is none. changed is false if it has them all.
func Merge(bundle, added []byte, now time.Time) (merged []byte, changed bool) {
	var list []*x509.Certificate
	dropped := false
	for _, text := range [][]byte{bundle, added} {
		for {
			var block *pem.Block
			block, text = pem.Decode(text)
			if block == nil {
				break
			}
			cert, err := x509.ParseCertificate(block.Bytes)
			if err != nil || now.After(cert.NotAfter) {
				dropped = true
				continue
			}
			if !slices.ContainsFunc(list, cert.Equal) {
				list = append(list, cert)
			}
		}
	}
	slices.SortStableFunc(list, func(a, b *x509.Certificate) int { return b.NotBefore.Compare(a.NotBefore) }) // the newest first
	list = list[:min(len(list), maxAnchors)]
	for _, cert := range list {
		merged = append(merged, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})...)
	}
	return merged, dropped || len(merged) != len(bundle) || string(merged) != string(bundle)
}
