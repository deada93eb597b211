// Package kube starts a real kube-apiserver on a real etcd for tests, and gives it
// objects. There is no kubelet and no controller: a test writes EndpointSlices and
// the status of pods itself.
package kube

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/child"
)

// The tokens that the API server knows.
const (
	Admin  = "admin-token"  // may do everything
	Reader = "reader-token" // the user "reader", who may do what a test grants
)

// API is a running API server.
type API struct {
	URL string

	t      testing.TB
	dir    string
	port   string
	etcd   string
	server *child.Process
	client *http.Client
}

// Programs returns where etcd and kube-apiserver are: in KUBEBUILDER_ASSETS, or in
// the user's cache, where `make kube-programs` puts them.
func Programs() (dir string, err error) {
	dir = os.Getenv("KUBEBUILDER_ASSETS")
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(cache, "meshctl", "kube", "bin")
	}
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return dir, fmt.Errorf("no %s in %s: `make kube-programs` builds it", name, dir)
		}
	}
	return dir, nil
}

// Require skips the test where there is no API server to start, in one line, or
// fails it if the environment says MESHCTL_KUBE=require.
func Require(t testing.TB) string {
	t.Helper()
	dir, err := Programs()
	switch {
	case err == nil:
	case os.Getenv("MESHCTL_KUBE") == "require":
		t.Fatalf("a Kubernetes API server is required: %v", err)
	default:
		t.Skipf("needs a Kubernetes API server: %v", err)
	}
	return dir
}

// Start starts etcd and an API server on loopback. They end with the test, also
// when it is killed.
func Start(t testing.TB) *API {
	t.Helper()
	bin := Require(t)
	a := &API{t: t, dir: t.TempDir(), port: freePort(t), client: &http.Client{
		Timeout:   30 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, //nolint:gosec // its own certificate, on loopback
	}}
	a.URL = "https://127.0.0.1:" + a.port
	a.etcd = "http://127.0.0.1:" + freePort(t)
	peer := "http://127.0.0.1:" + freePort(t)
	a.write("tokens.csv", Admin+",admin,admin,system:masters\n"+Reader+",reader,reader\n")
	a.write("sa.key", newKey(t))
	etcd := child.Start(t, filepath.Join(a.dir, "etcd.log"), nil, filepath.Join(bin, "etcd"), "--data-dir="+filepath.Join(a.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+a.etcd, "--advertise-client-urls="+a.etcd, "--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer, "--initial-cluster=default="+peer, "--log-level=error")
	t.Cleanup(etcd.Kill)
	a.Up()
	t.Cleanup(a.Down)
	return a
}

// On has failures be those of a subtest until that ends.
func (a *API) On(t testing.TB) *API {
	before := a.t
	a.t = t
	t.Cleanup(func() { a.t = before })
	return a
}

// Up starts the API server, after Down with all that it knew, on the same port.
func (a *API) Up() {
	a.t.Helper()
	bin := Require(a.t)
	key := filepath.Join(a.dir, "sa.key")
	log := filepath.Join(a.dir, "apiserver.log")
	a.server = child.Start(a.t, log, nil, filepath.Join(bin, "kube-apiserver"), "--etcd-servers="+a.etcd, "--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1", "--secure-port="+a.port, "--cert-dir="+filepath.Join(a.dir, "certs"), "--token-auth-file="+filepath.Join(a.dir, "tokens.csv"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+key, "--service-account-signing-key-file="+key,
		"--service-cluster-ip-range=10.0.0.0/16", "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
		"--endpoint-reconciler-type=none", "--allow-privileged=true")
	for end := time.Now().Add(3 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		err := a.try(http.MethodGet, "/readyz", "", nil)
		if err == nil {
			return
		}
		if time.Now().After(end) || a.server.Ended() {
			text, _ := os.ReadFile(log) // what there is of it
			a.t.Fatalf("the API server does not get ready: %v\n%s", err, tail(string(text)))
		}
	}
}

// Down kills the API server; etcd keeps what it knew.
func (a *API) Down() { a.server.Kill() }

// Kubeconfig writes a file for one of the tokens and returns its name.
func (a *API) Kubeconfig(token string) string {
	return a.write("kubeconfig-"+token, fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
clusters: [{name: test, cluster: {server: %q, insecure-skip-tls-verify: true}}]
users: [{name: test, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
`, a.URL, token))
}

func (a *API) write(name, text string) string {
	a.t.Helper()
	name = filepath.Join(a.dir, name)
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return name
}

// errStatus is an answer that is no success.
type errStatus struct {
	code int
	text string
}

func (e errStatus) Error() string { return fmt.Sprintf("%d: %s", e.code, e.text) }

// try makes one request as the administrator.
func (a *API) try(method, path, contentType string, body []byte) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, a.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+Admin)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return errStatus{resp.StatusCode, string(text)}
	}
	return nil
}

func freePort(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() //nolint:errcheck // it was never used
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// tail is the end of a log.
func tail(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-15):], "\n")
}
