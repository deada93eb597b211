package identity

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/meshctl/meshctl/proxy/identity/authority"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	webName = "web.default.serviceaccount.identity.linkerd.cluster.local"
	dbName  = "db.default.serviceaccount.identity.linkerd.cluster.local"
)

func newCA(t testing.TB) *authority.Authority {
	t.Helper()
	a, err := authority.New("cluster.local", 24*time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// issue makes a certificate for names, with what edit says.
func issue(t testing.TB, a *authority.Authority, name string, edit ...func(*authority.Request)) authority.Leaf {
	t.Helper()
	r := authority.Request{Names: []string{name}, Life: time.Hour}
	for _, e := range edit {
		e(&r)
	}
	l, err := a.Issue(r, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func over(r *authority.Request) { r.NotBefore = time.Now().Add(-2 * time.Hour) }

func early(r *authority.Request) { r.NotBefore = time.Now().Add(2 * time.Hour) }

func pemOf(kind string, der ...[]byte) []byte {
	var out []byte
	for _, d := range der {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: d})...)
	}
	return out
}

func keyOf(t testing.TB, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return pemOf("PRIVATE KEY", der)
}

// put writes one file with a mode, whatever the umask.
func put(t testing.TB, dir, name string, text []byte, mode os.FileMode) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, text, mode); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// plain writes the three files as files, without links.
func plain(t testing.TB, dir string, l authority.Leaf) {
	t.Helper()
	put(t, dir, CertificateFile, pemOf("CERTIFICATE", l.Certificate.Raw), 0o644)
	put(t, dir, KeyFile, keyOf(t, l.Key), 0o600)
	var roots [][]byte
	for _, a := range l.Anchors {
		roots = append(roots, a.Raw)
	}
	put(t, dir, AnchorsFile, pemOf("CERTIFICATE", roots...), 0o644)
}

func write(t testing.TB, dir string, l authority.Leaf) {
	t.Helper()
	if err := l.Write(dir); err != nil {
		t.Fatal(err)
	}
}

func snapshot(t testing.TB, l authority.Leaf) *Snapshot {
	t.Helper()
	s, err := NewSnapshot(l.TLS(), l.Anchors, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// journal is a log to look into.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.String()
}

func (j *journal) logger() *slog.Logger { return slog.New(slog.NewTextHandler(j, nil)) }

// follow opens a directory as a Source that notices quickly.
func follow(t testing.TB, dir string, j *journal) Source {
	t.Helper()
	s, err := Files(context.Background(), FilesConfig{Dir: dir, Settle: 5 * time.Millisecond, Log: j.logger()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// await waits until what is so, for as long as a loaded machine may need.
func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}
