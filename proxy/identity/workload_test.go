package identity

import (
	"context"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	api "github.com/spiffe/go-spiffe/v2/proto/spiffe/workload"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/meshctl/meshctl/proxy/identity/authority"
)

// agent speaks the Workload API on a Unix socket, as SPIRE's agent does (which
// integration/spire has), and can be made to fail.
type agent struct {
	api.UnimplementedSpiffeWorkloadAPIServer
	socket string
	server *grpc.Server
	served sync.WaitGroup

	mu      sync.Mutex
	says    *api.X509SVIDResponse // nil: no identity issued
	changed chan struct{}
}

func newAgent(t *testing.T) *agent {
	t.Helper()
	dir, err := os.MkdirTemp("", "wl") // a socket's path has 107 bytes at most
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &agent{socket: filepath.Join(dir, "agent.sock"), changed: make(chan struct{})}
}

func (a *agent) start(t *testing.T) {
	t.Helper()
	os.Remove(a.socket)
	l, err := net.Listen("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	a.server = grpc.NewServer()
	api.RegisterSpiffeWorkloadAPIServer(a.server, a)
	a.served.Go(func() { a.server.Serve(l) })
	t.Cleanup(a.stop)
}

func (a *agent) stop() {
	a.server.Stop()
	a.served.Wait()
}

// FetchX509SVID is the call that the Source makes.
func (a *agent) FetchX509SVID(_ *api.X509SVIDRequest, stream grpc.ServerStreamingServer[api.X509SVIDResponse]) error {
	md, _ := metadata.FromIncomingContext(stream.Context())
	if len(md.Get("workload.spiffe.io")) != 1 {
		return status.Error(codes.InvalidArgument, "the security header is missing")
	}
	for {
		a.mu.Lock()
		says, changed := a.says, a.changed
		a.mu.Unlock()
		if says == nil {
			return status.Error(codes.PermissionDenied, "no identity issued")
		}
		if err := stream.Send(says); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		}
	}
}

func (a *agent) say(r *api.X509SVIDResponse) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.says = r
	close(a.changed)
	a.changed = make(chan struct{})
}

// response is a certificate, its bundle, and that of another domain.
func response(t *testing.T, ca *authority.Authority, foreign *x509.Certificate, edit ...func(*authority.Request)) (*api.X509SVIDResponse, authority.Leaf) {
	t.Helper()
	l := issue(t, ca, webName, append(edit, func(r *authority.Request) { r.SPIFFE = "spiffe://cluster.local/ns/default/sa/web" })...)
	key, err := x509.MarshalPKCS8PrivateKey(l.Key)
	if err != nil {
		t.Fatal(err)
	}
	r := &api.X509SVIDResponse{Svids: []*api.X509SVID{{
		SpiffeId: "spiffe://cluster.local/ns/default/sa/web", X509Svid: l.Certificate.Raw, X509SvidKey: key, Bundle: ca.Certificate().Raw,
	}}}
	if foreign != nil {
		r.FederatedBundles = map[string][]byte{"spiffe://other.example": foreign.Raw}
	}
	return r, l
}

func open(t *testing.T, socket string, j *journal) Source {
	t.Helper()
	s, err := Workload(context.Background(), WorkloadConfig{Socket: socket, Log: j.logger()})
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

func has(s Source, l authority.Leaf) func() bool {
	return func() bool {
		now, err := s.Current()
		return err == nil && now.Certificate().Leaf.Equal(l.Certificate)
	}
}

func TestTheWorkloadAPIIsWaitedForAndFollowed(t *testing.T) {
	t.Parallel() // the library waits 1, 2, 3 s between attempts
	var j journal
	a, ca := newAgent(t), newCA(t)
	foreign, err := authority.New("other.example", time.Hour, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, a.socket, &j)
	await(t, "a word that nobody listens", func() bool { return s.Stats().Failed > 0 })
	if _, err := s.Current(); !errors.Is(err, ErrWaiting) || !strings.Contains(err.Error(), "the Workload API") {
		t.Errorf("without an agent: %v", err)
	}
	a.start(t)
	await(t, "the agent's own words", func() bool {
		_, err := s.Current()
		return err != nil && strings.Contains(err.Error(), "no identity issued")
	})
	first, leaf := response(t, ca, foreign.Certificate())
	a.say(first)
	await(t, "the first certificate", has(s, leaf))
	now, _ := s.Current()
	if now.Name() != webName || now.SPIFFE() != "spiffe://cluster.local/ns/default/sa/web" || len(now.Anchors()) != 2 {
		t.Errorf("%s, %s, %d anchors", now.Name(), now.SPIFFE(), len(now.Anchors()))
	}
	peer := issue(t, foreign, dbName, func(r *authority.Request) { r.SPIFFE = "spiffe://other.example/db" })
	if id, err := now.VerifyPeer([]*x509.Certificate{peer.Certificate}, "", true, time.Now()); id != "spiffe://other.example/db" {
		t.Errorf("a peer of the federated domain: %q, %v", id, err)
	}

	next, leaf := response(t, ca, nil)
	a.say(next)
	await(t, "the next certificate", has(s, leaf))
	if now, _ := s.Current(); now.Generation() != 2 || len(now.Anchors()) != 1 {
		t.Errorf("generation %d, %d anchors", now.Generation(), len(now.Anchors()))
	}
}

func TestWhatTheWorkloadAPISendsIsJudgedAndTheLastGoodKept(t *testing.T) {
	t.Parallel()
	var j journal
	a, ca, other := newAgent(t), newCA(t), newCA(t)
	first, leaf := response(t, ca, nil)
	a.say(first)
	a.start(t)
	s := open(t, "unix://"+a.socket, &j)
	await(t, "the first certificate", has(s, leaf))
	stranger, _ := response(t, ca, nil)
	stranger.Svids[0].Bundle = other.Certificate().Raw
	expired, _ := response(t, ca, nil, over)
	broken, _ := response(t, ca, nil)
	broken.Svids[0].X509Svid = []byte{1, 2, 3}
	for name, bad := range map[string]*api.X509SVIDResponse{"another root": stranger, "expired": expired, "no certificate": broken} {
		t.Run(name, func(t *testing.T) {
			before := s.Stats().Failed
			a.say(bad)
			await(t, "a failure", func() bool { return s.Stats().Failed > before })
			if !has(s, leaf)() {
				t.Error("the last good is not kept")
			}
		})
	}
	await(t, "the reasons in the log", func() bool {
		return strings.Contains(j.String(), "wrong root") && strings.Contains(j.String(), "has expired")
	})
	a.stop()
	next, leaf2 := response(t, ca, nil)
	a.say(next)
	if !has(s, leaf)() {
		t.Error("without an agent the last good is not kept")
	}
	a.start(t)
	await(t, "the certificate of an agent that came back", has(s, leaf2))
}

func TestAddressesOfTheWorkloadAPI(t *testing.T) {
	for in, want := range map[string]string{
		"/run/spire/agent.sock": "unix:///run/spire/agent.sock", "unix:///run/a.sock": "unix:///run/a.sock",
		"tcp://127.0.0.1:8080": "tcp://127.0.0.1:8080", "agent.sock": "", "": "", "http://x": "", "tcp://name:80": "",
	} {
		if got, err := Address(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	if _, err := Workload(t.Context(), WorkloadConfig{Socket: "nonsense"}); err == nil {
		t.Error("nonsense is an address")
	}
}
