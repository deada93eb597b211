package authority

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

func made(t *testing.T) *Authority {
	t.Helper()
	a, err := New("cluster.local", time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestACAIsWrittenOnceAndReadBack(t *testing.T) {
	dir, a := filepath.Join(t.TempDir(), "ca"), made(t)
	if err := a.Write(dir); err != nil {
		t.Fatal(err)
	}
	if err := made(t).Write(dir); !errors.Is(err, os.ErrExist) {
		t.Errorf("written over: %v", err)
	}
	b, err := Load(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !b.Certificate().Equal(a.Certificate()) {
		t.Error("another CA came back")
	}
	l, err := b.Issue(Request{Names: []string{"web.example"}, Life: 2 * time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Certificate.CheckSignatureFrom(a.Certificate()); err != nil {
		t.Error(err)
	}
	if l.Certificate.NotAfter.After(a.Certificate().NotAfter) {
		t.Error("it outlives its CA")
	}
}

func TestALeafThatCannotBeIsNotIssued(t *testing.T) {
	a := made(t)
	for name, r := range map[string]Request{
		"no name":      {Life: time.Hour},
		"no life":      {Names: []string{"a"}},
		"no SPIFFE ID": {SPIFFE: "http://a", Life: time.Hour},
		"too late":     {Names: []string{"a"}, Life: time.Hour, NotBefore: time.Now().Add(2 * time.Hour)},
	} {
		if _, err := a.Issue(r, time.Now()); err == nil {
			t.Errorf("%s: issued", name)
		}
	}
	if _, err := New("not a domain", time.Hour, time.Now()); err == nil {
		t.Error("a CA of no domain")
	}
}

func TestFilesThatWereThereAreReplaced(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "tls.crt"), []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		l, err := made(t).Issue(Request{Names: []string{"a"}, Life: time.Minute}, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Write(dir); err != nil {
			t.Fatal(err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "tls.crt")); err != nil || string(text) != string(certificatePEM(l.Certificate)) {
			t.Errorf("tls.crt is %q, %v", text, err)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 5 { // three links, ..data, its directory
		t.Errorf("left: %v, %v", entries, err)
	}
}

func TestWhatRootWritesBelongsToTheOwnerOfTheDirectory(t *testing.T) {
	lab.Require(t) // root
	dir := t.TempDir()
	if err := os.Chown(dir, 2102, 2103); err != nil {
		t.Fatal(err)
	}
	l, err := made(t).Issue(Request{Names: []string{"a"}, Life: time.Minute}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Write(dir); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tls.crt", "tls.key", "ca.crt"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if s := info.Sys().(*syscall.Stat_t); s.Uid != 2102 || s.Gid != 2103 {
			t.Errorf("%s belongs to %d:%d", name, s.Uid, s.Gid)
		}
	}
}
