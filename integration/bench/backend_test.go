package bench

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// web starts an nginx with a page of 1 KiB, over HTTP/1 and over HTTP/2.
func (b *bench) web(t *testing.T) {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	conf := write(dir, "nginx.conf", fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; worker_rlimit_nofile 20000;
events { worker_connections 9000; }
http { access_log off; keepalive_requests 1000000000; keepalive_timeout 1h; http2_max_concurrent_streams 1024; default_type text/plain;
 client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
 server { listen %[2]d backlog=65535; location / { return 200 "%[4]s"; } }
 server { listen %[3]d http2 backlog=65535; location / { return 200 "%[4]s"; } } }
`, dir, http1Port, http2Port, strings.Repeat("a page. ", 128)))
	p := servers.Start(t, b.net.Pod.Command(context.Background(), "nginx", "-e", dir+"/err", "-c", conf))
	prefer(p.PID())
	for _, port := range []uint16{http1Port, http2Port} {
		if err := b.reachable(netip.AddrPortFrom(lab.PodV4, port)); err != nil {
			t.Fatalf("nginx: %v\n%s", err, p.Log())
		}
	}
}

// serve gives each connection to a port of the pod to handle, and closes it.
func (b *bench) serve(t *testing.T, port uint16, handle func(net.Conn)) {
	t.Helper()
	l := b.net.Pod.Listen(t, netip.AddrPortFrom(lab.PodV4, port))
	s := &serving{open: map[net.Conn]bool{}}
	s.group.Go(func() { s.accept(l, handle) })
	t.Cleanup(func() {
		l.Close()
		s.cut()
		s.group.Wait()
	})
}

// serving are the open connections of one backend.
type serving struct {
	group sync.WaitGroup
	mu    sync.Mutex
	open  map[net.Conn]bool
}

func (s *serving) accept(l net.Listener, handle func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return // closed by the test's end
		}
		s.mu.Lock()
		s.open[c] = true
		s.mu.Unlock()
		s.group.Go(func() {
			handle(c)
			c.Close()
			s.mu.Lock()
			delete(s.open, c)
			s.mu.Unlock()
		})
	}
}

// cut ends what is still open.
func (s *serving) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.open {
		c.Close()
	}
}
