package targets

import (
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

// greeter is a server that speaks first, as MySQL does.
func greeter(t *testing.T, n *lab.Net, at string) {
	t.Helper()
	l := n.Peer.Listen(t, addr(at))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return // the test is over
			}
			greet(conn)
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
}

func greet(conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write([]byte("hello\n")); err != nil {
		return
	}
	conn.Read(make([]byte, 1)) // until the client has it
}

// The list of an annotation takes the place of the default one, so that a port
// may become opaque, and a default port may stop being it.
func TestAnAnnotationDecidesHowLongAGreetingTakes(t *testing.T) {
	n := network(t, "10.244.0.11")
	greeter(t, n, "10.244.0.11:9000")
	annotated := func(name, ip string, port uint16, annotation string) string {
		return service{name: name, ip: ip, port: port, annotations: annotation, target: 9000, pods: []string{"10.244.0.11"}}.yaml()
	}
	const only = `config.linkerd.io/opaque-ports: "4406"`
	w := meshed(t, n, file(
		annotated("undeclared", "10.96.3.1", 4406, ""),
		annotated("declared", "10.96.3.2", 4406, only),
		annotated("by-default", "10.96.3.3", 3306, ""),
		annotated("replaced", "10.96.3.4", 3306, only),
		annotated("added", "10.96.3.5", 3306, `config.linkerd.io/opaque-ports: "+4406"`),
		annotated("none", "10.96.3.6", 3306, `config.linkerd.io/opaque-ports: ""`),
	))
	const early = 250 * time.Millisecond // of an undeclared port
	for i, c := range []struct {
		name string
		to   string
		wait bool
	}{
		{"a port that nobody declared", "10.96.3.1:4406", true},
		{"the port in the Service's list", "10.96.3.2:4406", false},
		{"a default port", "10.96.3.3:3306", false},
		{"a default port that the list replaces", "10.96.3.4:3306", true},
		{"a default port that the list adds to", "10.96.3.5:3306", false},
		{"a default port and an empty list", "10.96.3.6:3306", true},
	} {
		t.Run(strconv.Itoa(i+1)+" "+c.name, func(t *testing.T) {
			began := time.Now()
			conn := w.dial(t, addr(c.to))
			if _, err := conn.Read(make([]byte, 6)); err != nil {
				t.Fatalf("%v\n%s", err, w.proxy.Logged(t))
			}
			switch took := time.Since(began); {
			case c.wait && took < early-20*time.Millisecond:
				t.Errorf("the greeting took %s: it was not waited for the client", took)
			case !c.wait && took >= early:
				t.Errorf("the greeting took %s", took)
			case took > 3*time.Second:
				t.Errorf("the greeting took %s", took)
			}
		})
	}
}
