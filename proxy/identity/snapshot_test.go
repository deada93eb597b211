package identity

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/proxy/identity/authority"
)

func TestNameIsLinkerds(t *testing.T) {
	if got := Name("web", "default", "linkerd", "cluster.local"); got != webName {
		t.Errorf("got %s, want %s", got, webName)
	}
}

func TestPeersAreRefusedOrAcceptedRightly(t *testing.T) {
	ours, theirs := newCA(t), newCA(t) // of the same name, with other keys
	foreign, err := authority.New("other.example", time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	two := issue(t, ours, webName)
	two.Anchors = append(two.Anchors, foreign.Certificate())
	spiffe := func(r *authority.Request) { r.Names, r.SPIFFE = nil, "spiffe://cluster.local/ns/default/sa/db" }
	both := func(r *authority.Request) { r.SPIFFE = "spiffe://cluster.local/ns/default/sa/db" }
	for name, c := range map[string]struct {
		self authority.Leaf
		peer authority.Leaf
		want string
		id   string // "": refused
		says string
	}{
		"right":                        {issue(t, ours, webName), issue(t, ours, dbName), dbName, dbName, ""},
		"right, nobody expected":       {issue(t, ours, webName), issue(t, ours, dbName), "", dbName, ""},
		"right by SPIFFE ID":           {issue(t, ours, webName), issue(t, ours, "", spiffe), "spiffe://cluster.local/ns/default/sa/db", "spiffe://cluster.local/ns/default/sa/db", ""},
		"a SPIFFE ID, nobody expected": {issue(t, ours, webName), issue(t, ours, "", spiffe), "", "spiffe://cluster.local/ns/default/sa/db", ""},
		"both names, one expected":     {issue(t, ours, webName), issue(t, ours, dbName, both), "spiffe://cluster.local/ns/default/sa/db", "spiffe://cluster.local/ns/default/sa/db", ""},
		"both names, nobody expected":  {issue(t, ours, webName), issue(t, ours, dbName, both), "", dbName, ""},
		"wrong name":                   {issue(t, ours, webName), issue(t, ours, dbName), webName, "", "the peer is " + dbName + ", wanted " + webName},
		"wrong SPIFFE ID":              {issue(t, ours, webName), issue(t, ours, "", spiffe), "spiffe://cluster.local/ns/default/sa/web", "", "wanted spiffe://cluster.local/ns/default/sa/web"},
		"a longer name":                {issue(t, ours, webName), issue(t, ours, dbName), dbName[1:], "", "wanted"},
		"other case":                   {issue(t, ours, webName), issue(t, ours, dbName), strings.ToUpper(dbName), "", "wanted"},
		"wrong root of the same name":  {issue(t, ours, webName), issue(t, theirs, dbName), dbName, "", "the trust anchor of that name has another key"},
		"wrong root":                   {issue(t, ours, webName), issue(t, foreign, dbName), dbName, "", `wrong root: it was issued by "CN=root.linkerd.other.example,O=meshctl identity init (not for production)"`},
		"expired":                      {issue(t, ours, webName), issue(t, ours, dbName, over), dbName, "", "it has expired: since "},
		"not yet valid":                {issue(t, ours, webName), issue(t, ours, dbName, early), dbName, "", "it is not valid before "},
		"two anchors, the first":       {two, issue(t, ours, dbName), dbName, dbName, ""},
		"two anchors, the second":      {two, issue(t, foreign, dbName), dbName, dbName, ""},
		"two anchors, neither":         {two, issue(t, theirs, dbName), dbName, "", "wrong root"},
	} {
		t.Run(name, func(t *testing.T) {
			s := snapshot(t, c.self)
			for range 2 { // from memory the second time
				for _, server := range []bool{true, false} {
					id, err := s.VerifyPeer([]*x509.Certificate{c.peer.Certificate}, c.want, server, time.Now())
					if id != c.id || (err == nil) != (c.id != "") {
						t.Fatalf("server %v: got %q, %v; want %q", server, id, err, c.id)
					}
					if err != nil && (!strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n")) {
						t.Errorf("got %q, want it to say %q in one line", err, c.says)
					}
				}
			}
		})
	}
}

func TestAPeerThatSendsNothingIsRefused(t *testing.T) {
	s := snapshot(t, issue(t, newCA(t), webName))
	if id, err := s.VerifyPeer(nil, "", true, time.Now()); err == nil || id != "" {
		t.Errorf("got %q, %v", id, err)
	}
}

func TestWhatWasVerifiedIsRefusedOnceItIsOver(t *testing.T) {
	ca := newCA(t)
	s, peer := snapshot(t, issue(t, ca, webName)), issue(t, ca, dbName)
	chain := []*x509.Certificate{peer.Certificate}
	if _, err := s.VerifyPeer(chain, dbName, true, time.Now()); err != nil {
		t.Fatal(err)
	}
	_, err := s.VerifyPeer(chain, dbName, true, time.Now().Add(61*time.Minute))
	if err == nil || !strings.Contains(err.Error(), "has expired") {
		t.Errorf("after its end: %v", err)
	}
	_, err = s.VerifyPeer(chain, dbName, true, time.Now().Add(-time.Hour))
	if err == nil || !strings.Contains(err.Error(), "not valid before") {
		t.Errorf("before its begin: %v", err)
	}
}

func TestVerifyingAgainAllocatesNothingAndTheMemoryIsBounded(t *testing.T) {
	ca := newCA(t)
	s, peer := snapshot(t, issue(t, ca, webName)), issue(t, ca, dbName)
	chain, now := []*x509.Certificate{peer.Certificate}, time.Now()
	n := testing.AllocsPerRun(100, func() {
		if _, err := s.VerifyPeer(chain, dbName, true, now); err != nil {
			t.Error(err)
		}
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	for i := range maxVerified + 10 {
		s.anchors.remember(peerKey{leaf: [32]byte{byte(i), byte(i >> 8)}}, &verified{})
	}
	if n := len(s.anchors.verified); n != maxVerified {
		t.Errorf("%d peers are remembered, want %d", n, maxVerified)
	}
}

// custom signs any template, with a key of the caller's choice.
func custom(t *testing.T, template *x509.Certificate, key crypto.Signer, parent *x509.Certificate, by crypto.Signer) *x509.Certificate {
	t.Helper()
	template.SerialNumber = big.NewInt(time.Now().UnixNano())
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	}
	if parent == nil {
		parent, by = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newKey(t *testing.T) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func caTemplate(name string) *x509.Certificate {
	return &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
}

func TestKeysOfAllKindsAreTaken(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{"ECDSA": newKey(t), "RSA": rsaKey, "Ed25519": edKey} {
		t.Run(name, func(t *testing.T) {
			root := custom(t, caTemplate(name), key, nil, nil)
			leaf := custom(t, &x509.Certificate{DNSNames: []string{dbName}}, key, root, key) // no extended key usage: any
			s, err := NewSnapshot(tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: key}, []*x509.Certificate{root}, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			if id, err := s.VerifyPeer([]*x509.Certificate{leaf}, dbName, true, time.Now()); id != dbName {
				t.Error(id, err)
			}
		})
	}
}

func TestChainsWithIntermediates(t *testing.T) {
	rootKey, midKey := newKey(t), newKey(t)
	root := custom(t, caTemplate("root"), rootKey, nil, nil)
	mid := custom(t, caTemplate("issuer"), midKey, root, rootKey)
	short := caTemplate("short")
	short.NotBefore, short.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(-time.Minute)
	gone := custom(t, short, midKey, root, rootKey)
	leaf := custom(t, &x509.Certificate{DNSNames: []string{dbName}}, newKey(t), mid, midKey)
	orphan := custom(t, &x509.Certificate{DNSNames: []string{dbName}}, newKey(t), gone, midKey)
	a := newAnchors([]*x509.Certificate{root})
	now := time.Now()
	if _, err := a.verify([]*x509.Certificate{leaf}, true, now); err == nil || !strings.Contains(err.Error(), `issued by "CN=issuer"`) {
		t.Errorf("without the intermediate: %v", err)
	}
	if _, err := a.verify([]*x509.Certificate{orphan, gone}, true, now); err == nil || !strings.Contains(err.Error(), `the CA certificate "CN=short" has expired`) {
		t.Errorf("with one that is over: %v", err)
	}
	if _, err := a.verify([]*x509.Certificate{leaf, mid}, true, now); err != nil {
		t.Errorf("with it: %v", err)
	}
	if _, err := a.verify([]*x509.Certificate{leaf}, true, now); err != nil {
		t.Errorf("once verified, without it: %v", err)
	}
	long := append([]*x509.Certificate{orphan}, make([]*x509.Certificate, maxChain)...)
	if _, err := a.verify(long, true, now); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a long chain: %v", err)
	}
}

func TestWhatIsNoIdentityIsRefused(t *testing.T) {
	key := newKey(t)
	root := custom(t, caTemplate("root"), key, nil, nil)
	uri := func(s string) *url.URL {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	for name, c := range map[string]struct {
		template x509.Certificate
		says     string
	}{
		"only a common name":    {x509.Certificate{Subject: pkix.Name{CommonName: dbName}}, "neither a DNS name nor a SPIFFE ID"},
		"a wildcard":            {x509.Certificate{DNSNames: []string{"*.default.svc"}}, "neither a DNS name nor a SPIFFE ID"},
		"a name with line ends": {x509.Certificate{DNSNames: []string{"web\r\nl5d-client-id: admin"}}, "neither a DNS name nor a SPIFFE ID"},
		"another URI":           {x509.Certificate{URIs: []*url.URL{uri("https://example.com/x")}}, "neither a DNS name nor a SPIFFE ID"},
		"two SPIFFE IDs":        {x509.Certificate{URIs: []*url.URL{uri("spiffe://a/x"), uri("spiffe://a/y")}}, "more than one SPIFFE ID"},
		"a broken SPIFFE ID":    {x509.Certificate{URIs: []*url.URL{uri("spiffe://a/x?y")}}, "is no SPIFFE ID"},
		"a CA":                  {x509.Certificate{DNSNames: []string{dbName}, IsCA: true, BasicConstraintsValid: true}, "the certificate of a CA"},
		"no usage for it":       {x509.Certificate{DNSNames: []string{dbName}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, "does not let it be a server"},
	} {
		t.Run(name, func(t *testing.T) {
			leaf := custom(t, &c.template, newKey(t), root, key)
			if _, err := newAnchors([]*x509.Certificate{root}).verify([]*x509.Certificate{leaf}, true, time.Now()); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %q", err, c.says)
			}
		})
	}
}

func TestATrustDomainSpeaksForItselfOnly(t *testing.T) {
	ours, theirs := newCA(t), newCA(t)
	in := func(domain string) func(*authority.Request) {
		return func(r *authority.Request) { r.SPIFFE = "spiffe://" + domain + "/db" }
	}
	a := newDomains("cluster.local", map[string][]*x509.Certificate{
		"cluster.local": {ours.Certificate()}, "other.example": {theirs.Certificate()},
	})
	s, err := newSnapshot(issue(t, ours, webName, in("cluster.local")).TLS(), a, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		peer authority.Leaf
		want string
		id   string
	}{
		"ours, by DNS":                     {issue(t, ours, dbName, in("cluster.local")), dbName, dbName},
		"theirs, by SPIFFE ID":             {issue(t, theirs, dbName, in("other.example")), "spiffe://other.example/db", "spiffe://other.example/db"},
		"theirs, nobody expected":          {issue(t, theirs, dbName, in("other.example")), "", "spiffe://other.example/db"},
		"theirs, by a DNS name":            {issue(t, theirs, dbName, in("other.example")), dbName, ""},
		"theirs, with our domain":          {issue(t, theirs, dbName, in("cluster.local")), "spiffe://cluster.local/db", ""},
		"ours, with their domain":          {issue(t, ours, dbName, in("other.example")), "spiffe://other.example/db", ""},
		"a domain that nobody knows":       {issue(t, ours, dbName, in("third.example")), "", ""},
		"no SPIFFE ID, though ours signed": {issue(t, ours, dbName), dbName, ""},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := s.VerifyPeer([]*x509.Certificate{c.peer.Certificate}, c.want, true, time.Now())
			if id != c.id || (err == nil) != (id != "") {
				t.Errorf("got %q, %v; want %q", id, err, c.id)
			}
		})
	}
}

func BenchmarkVerifyPeer(b *testing.B) {
	ca := newCA(b)
	s, peer := snapshot(b, issue(b, ca, webName)), issue(b, ca, dbName)
	chain, now := []*x509.Certificate{peer.Certificate}, time.Now()
	b.Run("again", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.VerifyPeer(chain, dbName, true, now); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("the first time", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := s.anchors.check(chain, true, now); err != nil {
				b.Fatal(err)
			}
		}
	})
}
