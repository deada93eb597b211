package proxy

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/proxy/identity"
	"github.com/meshctl/meshctl/proxy/identity/authority"
)

var nowhere = netip.MustParseAddrPort("127.0.0.1:9")

// writeIdentity issues a certificate into a directory.
func writeIdentity(t *testing.T, dir string) authority.Leaf {
	t.Helper()
	ca, err := authority.New("cluster.local", time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	l, err := ca.Issue(authority.Request{Names: []string{"web.default.serviceaccount.identity.linkerd.cluster.local"}, Life: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Write(dir); err != nil {
		t.Fatal(err)
	}
	return l
}

func TestTheProxyIsReadyOnceItHasACertificate(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "identity")
	r := run(t, nowhere, func(c *Config) { c.IdentityDir = dir })
	if status, body := r.get("/ready"); status != 503 || !strings.Contains(body, "not ready: there is no certificate yet: "+dir) {
		t.Errorf("without one: %d %q", status, body)
	}
	if _, body := r.get("/metrics"); strings.Contains(body, "expiration_timestamp_seconds") || !strings.Contains(body, `control_identity_cert_refreshes_total{result="ok"} 0`) {
		t.Error("metrics of a certificate that is not there")
	}
	writeIdentity(t, dir)
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		status, body := r.get("/ready")
		if status == 200 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("not ready after 30 s: %s", body)
		}
	}
	_, body := r.get("/metrics")
	for _, want := range []string{`control_identity_cert_refreshes_total{result="ok"} 1`, "control_identity_cert_expiration_timestamp_seconds 1", "\nidentity_cert_refresh_count 1"} {
		if !strings.Contains(body, want) {
			t.Errorf("metrics do not say %s", want)
		}
	}
}

func TestFilesThatAreWrongAtTheStartAreAnError(t *testing.T) {
	dir := t.TempDir()
	writeIdentity(t, dir)
	if err := os.Chmod(filepath.Join(dir, identity.KeyFile), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg, _ := testConfig(nowhere)
	cfg.IdentityDir = dir
	_, err := New(cfg)
	if bad, ok := errors.AsType[*identity.FileError](err); !ok || !strings.Contains(bad.Error(), "chmod") {
		t.Errorf("got %v", err)
	}
}

func TestOneIdentityIsEnough(t *testing.T) {
	cfg, _ := testConfig(nowhere)
	cfg.IdentityDir, cfg.SPIFFESocket = "/a", "/b"
	if err := cfg.Validate(); err == nil || !strings.Contains(err.Error(), "choose one") {
		t.Errorf("got %v", err)
	}
}

func TestAProxyWaitsForTheWorkloadAPI(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "agent.sock")
	r := run(t, nowhere, func(c *Config) { c.SPIFFESocket = socket })
	if status, body := r.get("/ready"); status != 503 || !strings.Contains(body, "the Workload API") {
		t.Errorf("%d %q", status, body)
	}
}
