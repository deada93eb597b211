package destination

import (
	"crypto/tls"
	"time"

	"github.com/meshctl/meshctl/proxy/identity"
)

// TLS is how connections to a server of that identity are made with one's own.
func TLS(source identity.Source, server string) func() (*tls.Config, error) {
	return func() (*tls.Config, error) {
		s, err := source.Current()
		if err != nil {
			return nil, err
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS13, ServerName: server, NextProtos: []string{"h2"},
			InsecureSkipVerify: true, // VerifyConnection does all of it: the name is compared with what the server is to be
			GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				return s.Certificate(), nil
			},
			VerifyConnection: func(c tls.ConnectionState) error {
				_, err := s.VerifyPeer(c.PeerCertificates, server, true, time.Now())
				return err
			},
		}, nil
	}
}
