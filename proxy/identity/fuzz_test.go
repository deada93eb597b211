package identity

import (
	"bytes"
	"testing"
	"time"
)

// Whatever a file has in it: an error or certificates, never both or neither, and the
// same with other line ends.
func FuzzPEM(f *testing.F) {
	l := issue(f, newCA(f), webName)
	cert, key := pemOf("CERTIFICATE", l.Certificate.Raw), keyOf(f, l.Key)
	for _, seed := range [][]byte{nil, cert, key, append(cert, key...), cert[:len(cert)/2], append(cert, cert[:11]...), []byte("-----BEGIN "),
		[]byte("-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n"), []byte("-----BEGIN X-----\nA: b\n\nAAAA\n-----END X-----")} {
		f.Add(seed)
	}
	now := time.Now()
	f.Fuzz(func(t *testing.T, text []byte) {
		certs, err := parseCertificates(text)
		if (err == nil) == (len(certs) == 0) {
			t.Errorf("%d certificates and %v", len(certs), err)
		}
		_ = checkKey(text)
		if _, err := ParseAnchors(text, now); err == nil && certs == nil {
			t.Error("anchors without certificates")
		}
		if s, err := (texts{certificate: text, key: key, anchors: text}).parse("dir", now); err == nil && s.ID() == "" {
			t.Error("an identity without a name")
		}
		if bytes.ContainsRune(text, '\r') {
			return
		}
		again, err2 := parseCertificates(bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")))
		if err == nil && (err2 != nil || len(again) != len(certs)) {
			t.Errorf("with CRLF: %v", err2)
		}
	})
}
