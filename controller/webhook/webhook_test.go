package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/meshctl/meshctl/inject"
	"github.com/meshctl/meshctl/inject/patch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func handler() *Handler {
	return &Handler{
		Options: inject.Options{Image: "localhost/meshctl:test"}, Log: slog.New(slog.DiscardHandler),
		Namespace: func(_ context.Context, name string) (map[string]string, error) {
			switch name {
			case "off":
				return map[string]string{"linkerd.io/inject": "disabled"}, nil
			case "lost":
				return nil, errors.New("no answer")
			}
			return nil, nil
		},
	}
}

func question(namespace, kind, operation, pod string) string {
	return `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"u1","operation":"` + operation +
		`","namespace":"` + namespace + `","kind":{"group":"","version":"v1","kind":"` + kind + `"},"object":` + pod + `}}`
}

const plain = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web"},"spec":{"containers":[{"name":"app","image":"app"}]}}`

func TestWhatBecomesOfAPod(t *testing.T) {
	for _, tt := range []struct {
		what, namespace, kind, operation, pod string
		allowed, patched                      bool
		says                                  string
	}{
		{"a pod", "shop", "Pod", "CREATE", plain, true, true, ""},
		{"of a namespace that is left out", "off", "Pod", "CREATE", plain, true, false, ""},
		{"that changes", "shop", "Pod", "UPDATE", plain, true, false, ""},
		{"something else", "shop", "Binding", "CREATE", `{}`, true, false, ""},
		{"on the node's network", "shop", "Pod", "CREATE", strings.Replace(plain, `"spec":{`, `"spec":{"hostNetwork":true,`, 1), false, false, "hostNetwork"},
		{"with a wrong annotation", "shop", "Pod", "CREATE", strings.Replace(plain, `"name":"web"`, `"name":"web","annotations":{"config.linkerd.io/skip-outbound-ports":"many"}`, 1), false, false, "many"},
		{"whose namespace cannot be read", "lost", "Pod", "CREATE", plain, false, false, "no answer"},
		{"that is none", "shop", "Pod", "CREATE", `[]`, false, false, "no object"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			var in review
			if err := json.Unmarshal([]byte(question(tt.namespace, tt.kind, tt.operation, tt.pod)), &in); err != nil {
				t.Fatal(err)
			}
			got := handler().Review(t.Context(), in.Request)
			if got.UID != "u1" || got.Allowed != tt.allowed || (got.Patch != nil) != tt.patched {
				t.Errorf("%+v", got)
			}
			if tt.says != "" && (got.Status == nil || !strings.Contains(got.Status.Message, tt.says)) {
				t.Errorf("the answer is %+v, and does not say %q", got.Status, tt.says)
			}
			if !tt.patched {
				return
			}
			before, err := patch.Decode([]byte(tt.pod))
			if err != nil {
				t.Fatal(err)
			}
			var ops []patch.Op
			if err := json.Unmarshal(got.Patch, &ops); err != nil || got.PatchType != "JSONPatch" {
				t.Fatalf("%v, %s", err, got.PatchType)
			}
			after, err := patch.Apply(before, ops)
			if err != nil {
				t.Fatal(err)
			}
			text, err := json.Marshal(after)
			if err != nil || !bytes.Contains(text, []byte("localhost/meshctl:test")) {
				t.Errorf("%v: %s", err, text)
			}
		})
	}
}

func TestWhatIsNoQuestionIsRefused(t *testing.T) {
	for body, want := range map[string]int{
		"": 400, "{": 400, `{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{}}`: 400,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`: 400, question("shop", "Pod", "CREATE", plain): 200,
		`{"apiVersion":"` + strings.Repeat("x", maxReview) + `"}`: 400,
	} {
		w := &recorder{header: http.Header{}}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "/inject", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		handler().ServeHTTP(w, r)
		if w.code() != want {
			t.Errorf("%.60q: %d, want %d", body, w.code(), want)
		}
	}
}

type recorder struct {
	header http.Header
	status int
}

func (r *recorder) Header() http.Header         { return r.header }
func (r *recorder) Write(b []byte) (int, error) { return len(b), nil }
func (r *recorder) WriteHeader(status int)      { r.status = status }
func (r *recorder) code() int {
	if r.status == 0 {
		return 200
	}
	return r.status
}

// trusted is a bundle as an API server has it.
type trusted struct {
	mu     sync.Mutex
	bundle []byte
	fails  int
}

func (b *trusted) trust(_ context.Context, added []byte) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fails > 0 {
		b.fails--
		return errors.New("not now")
	}
	b.bundle, _ = Merge(b.bundle, added, time.Now())
	return nil
}

func (b *trusted) pool() *x509.CertPool {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := x509.NewCertPool()
	p.AppendCertsFromPEM(b.bundle)
	return p
}

func TestTheCertificateIsReplacedAndAlwaysTrusted(t *testing.T) {
	api := &trusted{fails: 1}
	c := &Certificate{Names: []string{"hook.test"}, Life: 6 * time.Second, Again: 20 * time.Millisecond, Settle: 500 * time.Millisecond, Trust: api.trust, Log: slog.New(slog.DiscardHandler)}
	if c.Ready() == nil {
		t.Error("ready without a certificate")
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.Run(ctx) })
	defer running.Wait()
	defer stop()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: handler(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	running.Go(func() { _ = web.Serve(tls.NewListener(l, &tls.Config{GetCertificate: c.Current})) })
	defer web.Close()
	for end := time.Now().Add(20 * time.Second); c.Ready() != nil; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(c.Ready())
		}
	}
	seen := map[string]bool{}
	for end := time.Now().Add(30 * time.Second); len(seen) < 2; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("no second certificate")
		}
		started := time.Now()
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: api.pool(), ServerName: "hook.test"}, DisableKeepAlives: true}
		answer, err := (&http.Client{Transport: transport, Timeout: 10 * time.Second}).
			Post("https://"+l.Addr().String()+"/inject", "application/json", strings.NewReader(question("shop", "Pod", "CREATE", plain)))
		if err != nil && time.Since(started) > c.Settle {
			continue // a busy machine: what was trusted then is too old
		}
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, answer.Body)
		answer.Body.Close()
		seen[answer.TLS.PeerCertificates[0].SerialNumber.String()] = true
	}
}

func TestABundleHasWhatIsAliveOfAllReplicas(t *testing.T) {
	now := time.Now()
	made := func(at time.Time) []byte {
		cert, err := SelfSigned([]string{"a"}, time.Hour, at)
		if err != nil {
			t.Fatal(err)
		}
		return bundleOf(cert)
	}
	mine, other, old := made(now), made(now.Add(-time.Minute)), made(now.Add(-3*time.Hour))
	count := func(b []byte) (n int) {
		for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
			n++
		}
		return n
	}
	merged, changed := Merge(append(append([]byte("rubbish\n"), other...), old...), mine, now)
	if !changed || count(merged) != 2 || !bytes.Contains(merged, mine) || !bytes.Contains(merged, other) {
		t.Errorf("changed %v:\n%s", changed, merged)
	}
	if again, changed := Merge(merged, mine, now); changed || !bytes.Equal(again, merged) {
		t.Error("the same again is a change")
	}
	many := merged
	for i := range 2 * maxAnchors {
		many, _ = Merge(many, made(now.Add(time.Duration(i)*time.Second/100)), now)
	}
	if n := count(many); n != maxAnchors {
		t.Errorf("%d certificates", n)
	}
}
