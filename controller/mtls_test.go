package controller

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/destination"
	"github.com/meshctl/meshctl/proxy/identity"
	"github.com/meshctl/meshctl/proxy/identity/authority"
)

// certified is an identity from files of a CA; write changes it.
type certified struct {
	source identity.Source
	dir    string
}

func certify(t *testing.T, ca *authority.Authority, name string) certified {
	t.Helper()
	c := certified{dir: t.TempDir()}
	c.write(t, ca, name)
	var err error
	if c.source, err = identity.Files(t.Context(), identity.FilesConfig{Dir: c.dir}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.source.Close() })
	return c
}

func (c certified) write(t *testing.T, ca *authority.Authority, name string) {
	t.Helper()
	leaf, err := ca.Issue(authority.Request{Names: []string{name}, Life: time.Hour}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := leaf.Write(c.dir); err != nil {
		t.Fatal(err)
	}
}

func newCA(t *testing.T, domain string) *authority.Authority {
	t.Helper()
	ca, err := authority.New(domain, 24*time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

const (
	serverName = "meshctl.meshctl.serviceaccount.identity.linkerd.cluster.local"
	clientName = "web.shop.serviceaccount.identity.linkerd.cluster.local"
)

// secure serves with an identity until the test ends.
func secure(t *testing.T, w *world, source identity.Source) string {
	t.Helper()
	s := New(Config{Picture: w.picture})
	w.mu.Lock()
	w.servers = append(w.servers, s)
	w.mu.Unlock()
	ctx, stop := context.WithCancel(t.Context())
	opened, ended := make(chan string, 1), make(chan error, 1)
	go func() {
		ended <- s.Serve(ctx, Serving{Listen: listenOn("127.0.0.1:0"), TLS: TLS(source, "cluster.local"), Ready: func() error { return nil }},
			func(a []net.Addr) { opened <- a[0].String() })
	}()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	select {
	case a := <-opened:
		return a
	case err := <-ended:
		ended <- err
		t.Fatal(err)
		return ""
	}
}

func TestOnlyTheMeshIsAnswered(t *testing.T) {
	w := newWorld(t)
	w.set(web("10.1.0.1"))
	ca, foreign := newCA(t, "cluster.local"), newCA(t, "cluster.local")
	addr := secure(t, w, certify(t, ca, serverName).source)
	for what, tt := range map[string]struct {
		cfg    func(t *testing.T) destination.Config
		served bool
	}{
		"a member": {func(t *testing.T) destination.Config {
			return destination.Config{TLS: destination.TLS(certify(t, ca, clientName).source, serverName)}
		}, true},
		"of another CA": {func(t *testing.T) destination.Config {
			return destination.Config{TLS: destination.TLS(certify(t, foreign, clientName).source, serverName)}
		}, false},
		"of another trust domain": {func(t *testing.T) destination.Config {
			return destination.Config{TLS: destination.TLS(certify(t, ca, "web.shop.serviceaccount.identity.linkerd.other.local").source, serverName)}
		}, false},
		"who expects another server": {func(t *testing.T) destination.Config {
			return destination.Config{TLS: destination.TLS(certify(t, ca, clientName).source, "other."+serverName)}
		}, false},
		"plaintext": {func(*testing.T) destination.Config { return destination.Config{} }, false},
	} {
		t.Run(what, func(t *testing.T) {
			cfg := tt.cfg(t)
			cfg.Addrs, cfg.Namespace, cfg.Wait = []string{addr}, "shop", 500*time.Millisecond
			c, cache := client(t, cfg)
			if !tt.served {
				eventually(t, "the address counts as it is", func() bool {
					v := cache.Resolve(at("10.0.0.1:80")).View()
					return !v.Pending && v.Kind == discovery.Address && addrs(v) == "10.0.0.1:80"
				})
				time.Sleep(100 * time.Millisecond)
				if n := c.Stats().Messages; n != 0 {
					t.Errorf("%d messages were heard", n)
				}
				return
			}
			eventually(t, "the answer", func() bool { return addrs(cache.Resolve(at("10.0.0.1:80")).View()) == "10.1.0.1:8080" })
		})
	}
}

func TestCertificatesMayChangeWhileProxiesAsk(t *testing.T) {
	w := newWorld(t)
	w.set(web("10.1.0.1"))
	ca := newCA(t, "cluster.local")
	server, own := certify(t, ca, serverName), certify(t, ca, clientName)
	addr := secure(t, w, server.source)
	_, cache := client(t, destination.Config{Addrs: []string{addr}, Namespace: "shop", TLS: destination.TLS(own.source, serverName)})
	target := cache.Resolve(at("10.0.0.1:80"))
	eventually(t, "the answer", func() bool { return addrs(target.View()) == "10.1.0.1:8080" })
	server.write(t, ca, serverName)
	own.write(t, ca, clientName)
	w.set(web("10.1.0.2"))
	eventually(t, "the change", func() bool { return addrs(target.View()) == "10.1.0.2:8080" })
	_, another := client(t, destination.Config{Addrs: []string{addr}, Namespace: "shop", TLS: destination.TLS(own.source, serverName)})
	eventually(t, "a new client's answer", func() bool { return addrs(another.Resolve(at("10.0.0.1:80")).View()) == "10.1.0.2:8080" })
}

func TestPlaintextIsServedOnLoopbackOnly(t *testing.T) {
	err := Serving{Listen: listenOn("192.0.2.1:8086")}.Validate()
	if err == nil || !strings.Contains(err.Error(), "192.0.2.1:8086") {
		t.Errorf("%v", err)
	}
	if err := (Serving{Listen: listenOn("[::1]:8086")}).Validate(); err != nil {
		t.Error(err)
	}
}
