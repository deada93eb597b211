package cases

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
)

// patience bounds each step. A proxy that waits for its detection timeout waits
// three times as long, unless the script says otherwise.
const patience = 10 * time.Second

var program string // meshctl; set by TestMain

func TestMain(m *testing.M) {
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "cases:", err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (code int, err error) {
	var remove func()
	if program, remove, err = built.Compile(); err != nil {
		return 0, err
	}
	defer remove()
	return m.Run(), nil
}

func TestExchangesGoThroughTheProxyAsWithoutIt(t *testing.T) {
	files, err := filepath.Glob("../../testdata/scripts/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("only %d scripts (%v)", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(strings.TrimSuffix(filepath.Base(file), ".txt"), text)
		if err != nil {
			t.Fatal(err)
		}
		for i, way := range s.Ways {
			t.Run(fmt.Sprintf("%s/%d %s", s.Name, i+1, way.Name), func(t *testing.T) {
				t.Parallel()
				play(t, s, way)
			})
		}
	}
}

// play plays a script one way: the server on a port of its own, and the client
// against it or against a proxy before it.
func play(t *testing.T, s *Script, way Way) {
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	to := l.Addr().(*net.TCPAddr).AddrPort()
	server := to
	var p *built.Proxy
	if way.Name != "direct" {
		flags := append([]string{"--detect-timeout=30s"}, way.Flags...)
		if way.Name == "opaque" {
			flags = append(flags, "--opaque-ports="+strconv.Itoa(int(server.Port())))
		}
		if way.Name == "mediate" {
			flags = append(flags, "--intermediate")
		}
		p = built.Start(t, program, server, flags...)
		if to = p.In; way.Name == "mediate" {
			to = p.Out
		}
	}
	clientDone, serverDone := make(chan struct{}), make(chan struct{})
	var served error
	go func() {
		defer close(serverDone)
		served = serve(l, s.Server, clientDone)
	}()
	err = call(t, to, s.Client, p, way, serverDone)
	close(clientDone)
	if err != nil {
		t.Errorf("client: %v", err)
		l.Close()
	}
	<-serverDone
	if served != nil {
		t.Errorf("server: %v", served)
	}
	if p != nil {
		checkCounts(t, p, way)
	}
}

func serve(l *net.TCPListener, steps []Step, clientDone <-chan struct{}) error {
	if len(steps) == 0 {
		return unreached(l, clientDone)
	}
	l.SetDeadline(time.Now().Add(2 * patience))
	conn, err := l.AcceptTCP()
	if err != nil {
		return err
	}
	defer conn.Close()
	side := &Side{Conn: conn, Patience: patience, Done: clientDone}
	return side.Play(steps)
}

// unreached is a server that nothing may reach.
func unreached(l *net.TCPListener, clientDone <-chan struct{}) error {
	<-clientDone
	l.SetDeadline(time.Now().Add(50 * time.Millisecond))
	conn, err := l.Accept()
	if err != nil {
		return nil
	}
	conn.Close()
	return errors.New("the server was reached")
}

func call(t *testing.T, to netip.AddrPort, steps []Step, p *built.Proxy, way Way, serverDone <-chan struct{}) error {
	conn, err := net.DialTimeout("tcp4", to.String(), patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	side := &Side{Conn: conn.(*net.TCPConn), Patience: patience, Done: serverDone}
	if p != nil {
		side.Look = func() error { return look(t, p, conn, way.Want) }
	}
	return side.Play(steps)
}

// look compares what the proxy says of an open connection with what a way wants.
func look(t *testing.T, p *built.Proxy, conn net.Conn, want map[string]string) error {
	c := p.Connection(t, conn.LocalAddr().(*net.TCPAddr).AddrPort())
	said := map[string]string{"protocol": c.Protocol, "reason": c.Reason, "detected": c.Detected, "sni": c.SNI, "state": c.State}
	for key, got := range said {
		if w, ok := want[key]; ok && w != got {
			return fmt.Errorf("%s is %q, want %q", key, got, w)
		}
	}
	return nil
}

// checkCounts compares the metrics after the exchange with what a way wants; what
// it does not mention has to be zero.
func checkCounts(t *testing.T, p *built.Proxy, way Way) {
	s := p.Settled(t)
	for key, got := range map[string]float64{
		"requests":  s.Sum("request_total"),
		"successes": s.Sum("response_total", `classification="success"`),
		"failures":  s.Sum("response_total", `classification="failure"`),
		"lost":      s.Sum("meshctl_observer_lost_total"),
		"panics":    s.Sum("meshctl_panics_total"),
	} {
		want, _ := strconv.Atoi(way.Want[key])
		if got != float64(want) {
			t.Errorf("%s: %v are counted, want %d", key, got, want)
		}
	}
	if code := way.Want["status"]; code != "" && s.Sum("response_total", `status_code="`+code+`"`) == 0 {
		t.Errorf("no response with status %s is counted", code)
	}
	src, dst := s.Sum("tcp_read_bytes_total", `peer="src"`), s.Sum("tcp_write_bytes_total", `peer="dst"`)
	if src != dst && way.Want["cut"] == "" && way.Name != "mediate" { // which does not pass heads on as they are
		t.Errorf("%v bytes were read from the client and %v written to the server", src, dst)
	}
}
