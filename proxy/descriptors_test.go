package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/proxy/admin"
	"github.com/meshctl/meshctl/proxy/conn"
)

// TestWithTooFewDescriptorsTheProxySaysSoAndLeavesNothingOpen runs a copy of the
// test binary, because the limit is the process's.
func TestWithTooFewDescriptorsTheProxySaysSoAndLeavesNothingOpen(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "PROXY_TEST_CHILD=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !bytes.HasPrefix(out, []byte("fine\n")) {
		t.Errorf("%v\n%s", err, out)
	}
}

// startHungry starts a proxy with ever more descriptors, until they are enough.
func startHungry() error {
	if l, err := conn.NewLoop(); err != nil { // starts the runtime's poller, which does not survive EMFILE
		return err
	} else {
		l.Stop()
		_ = l.Run()
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: 64}); err != nil {
		return err
	}
	held := []int{}
	for fd, err := 0, error(nil); err == nil; {
		if fd, err = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0); err == nil {
			held = append(held, fd)
		}
	}
	failures := 0
	for spare := 1; len(held) > 0; spare++ {
		unix.Close(held[len(held)-1])
		held = held[:len(held)-1]
		err := startAndStop()
		if free := freeFDs(); free != spare {
			return fmt.Errorf("%d descriptors before, %d after (%w)", spare, free, err)
		}
		if err == nil {
			if failures < 5 {
				return fmt.Errorf("it runs with %d descriptors", spare)
			}
			return nil
		}
		if !errors.Is(err, unix.EMFILE) {
			return fmt.Errorf("with %d descriptors: %w", spare, err)
		}
		failures++
	}
	return errors.New("it never ran")
}

func startAndStop() error {
	cfg, _ := testConfig(netip.MustParseAddrPort("127.0.0.1:9"))
	p, err := New(cfg)
	if err != nil {
		return err
	}
	p.Shutdown()
	return p.Run(context.Background(), nil)
}

func freeFDs() int {
	var got []int
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		got = append(got, fd)
	}
	for _, fd := range got {
		unix.Close(fd)
	}
	return len(got)
}

func TestAListenerThatCannotBeHadHereIsSaidAndLeftOut(t *testing.T) {
	r := run(t, serve(t, echo), func(c *Config) {
		c.OutboundListen = append(loopback(), netip.MustParseAddrPort("[2001:db8::77]:4140")) // as ::1 without IPv6
	})
	if len(r.p.cfg.OutboundListen) != 1 || !strings.Contains(r.log.String(), "not listening on it\" addr=[2001:db8::77]:4140") {
		t.Errorf("listening on %v\n%s", r.p.cfg.OutboundListen, r.log)
	}
}

func TestAReaderOfConnectionsMayStopEarly(t *testing.T) {
	r := run(t, serve(t, echo), nil)
	for range 3 {
		c := dial(t, r.inbound())
		say(t, c, "hello\r\n")
		expect(t, c, "hello\r\n")
	}
	seen := 0
	r.p.connections()(func(admin.Connection) bool { seen++; return false })
	if seen != 1 {
		t.Errorf("yielded %d after being told to stop at the first", seen)
	}
}
