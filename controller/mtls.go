package controller

import (
	"crypto/tls"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/meshctl/meshctl/proxy/identity"
)

// TLS is the configuration of a server whose callers have to be of the mesh: their
// certificate comes from the same anchors, and names an identity of the trust
// domain. Both sides' certificates may change at any time.
func TLS(source identity.Source, trustDomain string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, ClientAuth: tls.RequireAnyClientCert, SessionTicketsDisabled: true,
		NextProtos: []string{"h2"}, // Linkerd's proxies offer none, which is allowed
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			s, err := source.Current()
			if err != nil {
				return nil, err
			}
			return s.Certificate(), nil
		},
		VerifyConnection: func(c tls.ConnectionState) error {
			s, err := source.Current()
			if err != nil {
				return err
			}
			id, err := s.VerifyPeer(c.PeerCertificates, "", false, time.Now())
			if err != nil {
				return err
			}
			return member(id, trustDomain)
		},
	}
}

// member refuses an identity of another trust domain.
func member(id, trustDomain string) error {
	if id == "" {
		return errors.New("the client's certificate names nobody")
	}
	if rest, spiffe := strings.CutPrefix(id, "spiffe://"); spiffe {
		if domain, _, _ := strings.Cut(rest, "/"); domain == trustDomain {
			return nil
		}
	} else if strings.Contains(id, ".identity.") && strings.HasSuffix(id, "."+trustDomain) {
		return nil
	}
	return fmt.Errorf("the client %q is not of the trust domain %q", id, trustDomain)
}
