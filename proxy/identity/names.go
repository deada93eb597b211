package identity

import (
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spiffe/go-spiffe/v2/spiffeid"
)

// names are the subject alternative names of a certificate that can be
// identities: the common name never is.
type names struct {
	dns    []string // in their order
	spiffe string   // URI; "": none
	domain string   // trust domain of that
}

// readNames refuses a certificate without any name, and one with several SPIFFE
// IDs (X.509-SVID 2: at most one URI).
func readNames(c *x509.Certificate) (names, error) {
	var n names
	for _, name := range c.DNSNames {
		if isHost(name) {
			n.dns = append(n.dns, name)
		}
	}
	for _, uri := range c.URIs {
		if !strings.EqualFold(uri.Scheme, "spiffe") {
			continue
		}
		id, err := spiffeid.FromURI(uri)
		if err != nil {
			return n, fmt.Errorf("its URI %q is no SPIFFE ID: %w", uri, err)
		}
		if n.spiffe != "" {
			return n, errors.New("it has more than one SPIFFE ID")
		}
		n.spiffe, n.domain = id.String(), id.TrustDomain().Name()
	}
	if n.id() == "" {
		return n, errors.New("it has neither a DNS name nor a SPIFFE ID by which it could be known")
	}
	return n, nil
}

// isHost reports whether a DNS name is one of letters, digits, hyphens and
// underscores. Others are no identities: a wildcard names nobody, and x509
// lets any ASCII pass, also what would break a header or a log line.
func isHost(name string) bool {
	if name == "" || len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for _, r := range []byte(label) {
			switch {
			case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			default:
				return false
			}
		}
	}
	return true
}

// id is the name that stands for all.
func (n names) id() string {
	if len(n.dns) > 0 {
		return n.dns[0]
	}
	return n.spiffe
}

func (n names) has(want string) bool {
	return want != "" && (want == n.spiffe || slices.Contains(n.dns, want))
}

func (n names) String() string {
	all := n.dns
	if n.spiffe != "" {
		all = append(all[:len(all):len(all)], n.spiffe)
	}
	return strings.Join(all, " and ")
}

// IsName reports whether a DNS name can be an identity: letters, digits, hyphens
// and underscores between dots. Others in a certificate do not count.
func IsName(name string) bool { return isHost(name) }

// Of is the identity that a certificate names: its first DNS name that can be one,
// else its SPIFFE ID. It says nothing of whether the certificate is to be trusted.
func Of(c *x509.Certificate) (string, error) {
	n, err := readNames(c)
	if err != nil {
		return "", err
	}
	return n.id(), nil
}
