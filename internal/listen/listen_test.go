package listen

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/meshctl/meshctl/integration/lab"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if os.Getenv("LISTEN_TEST_CHILD") != "" {
		os.Exit(child())
	}
	os.Exit(m.Run())
}

func TestAListOfAddressesIsReadStrictly(t *testing.T) {
	a := netip.MustParseAddrPort
	for list, want := range map[string][]netip.AddrPort{
		"127.0.0.1:4140":               {a("127.0.0.1:4140")},
		"127.0.0.1:4140,[::1]:4140":    {a("127.0.0.1:4140"), a("[::1]:4140")},
		" [::]:4143 , 10.0.0.7:65535 ": {a("[::]:4143"), a("10.0.0.7:65535")},
	} {
		got, err := Parse(list)
		if err != nil {
			t.Errorf("%q: %v", list, err)
		}
		if d := cmp.Diff(want, got, cmpopts.EquateComparable(netip.AddrPort{})); d != "" {
			t.Errorf("%q: %s", list, d)
		}
	}
	for list, words := range map[string]string{
		"":                      `""`,
		"4140":                  `"4140"`,
		":4140":                 `":4140"`,
		"localhost:4140":        `"localhost:4140"`,
		"127.0.0.1":             `"127.0.0.1"`,
		"127.0.0.1:4140,":       `""`,
		"127.0.0.1:65536":       `"127.0.0.1:65536"`,
		"[::1:4140":             `"[::1:4140"`,
		"127.0.0.1:0":           "port 0",
		"127.0.0.1:1,127.1:2":   `"127.1:2"`,
		"127.0.0.1:4140;[::]:1": "want an IP address and a port",
	} {
		if got, err := Parse(list); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q: %v, %v; want an error with %s", list, got, err, words)
		}
	}
}

func opened(t *testing.T, name string, addrs ...string) (Sockets, []netip.AddrPort) {
	t.Helper()
	s := Sockets{}
	var list []netip.AddrPort
	for _, a := range addrs {
		list = append(list, netip.MustParseAddrPort(a))
	}
	skipped, err := s.Open(name, list)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, skipped
}

func portOf(t *testing.T, fd int) uint16 {
	t.Helper()
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return uint16(sa.Port)
	case *unix.SockaddrInet6:
		return uint16(sa.Port)
	}
	t.Fatalf("an address of type %T", sa)
	return 0
}

// reaches reports whether a client gets through to addr.
func reaches(addr string, port uint16) error {
	c, err := net.DialTimeout("tcp", net.JoinHostPort(addr, strconv.Itoa(int(port))), 5*time.Second)
	if err == nil {
		c.Close()
	}
	return err
}

func TestTheUnspecifiedIPv6AddressTakesIPv4Too(t *testing.T) {
	s, _ := opened(t, Inbound, "[::]:0")
	port := portOf(t, s[Inbound][0])
	for _, addr := range []string{"127.0.0.1", "::1"} {
		if err := reaches(addr, port); err != nil {
			t.Error(err)
		}
	}
}

func TestAnyOtherIPv6AddressIsOnlyThat(t *testing.T) {
	s, _ := opened(t, Outbound, "[::1]:0")
	port := portOf(t, s[Outbound][0])
	if err := reaches("::1", port); err != nil {
		t.Error(err)
	}
	if err := reaches("127.0.0.1", port); err == nil {
		t.Error("reached by IPv4")
	}
	also := Sockets{} // the same port on IPv4 is free
	if _, err := also.Open(Outbound, []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)}); err != nil {
		t.Error(err)
	}
	also.Close()
}

func TestSocketsAreNonBlockingAndClosedOnExec(t *testing.T) {
	s, _ := opened(t, Admin, "127.0.0.1:0")
	fd := uintptr(s[Admin][0])
	if flags, err := unix.FcntlInt(fd, unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("blocking: %x, %v", flags, err)
	}
	if flags, err := unix.FcntlInt(fd, unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("open after exec: %x, %v", flags, err)
	}
}

func TestAPortInUseFailsTheWholeAndLeavesNothingOpen(t *testing.T) {
	s, _ := opened(t, Inbound, "127.0.0.1:0")
	taken := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), portOf(t, s[Inbound][0]))
	before := openFDs(t)
	other := Sockets{}
	_, err := other.Open(Outbound, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0"), taken})
	if !errors.Is(err, unix.EADDRINUSE) {
		t.Fatalf("opening a port in use: %v", err)
	}
	if want := "listening on " + taken.String() + " (outbound): address already in use"; err.Error() != want {
		t.Errorf("%q, want %q", err, want)
	}
	if len(other) != 0 || openFDs(t) != before {
		t.Errorf("%v, %d descriptors before, %d after", other, before, openFDs(t))
	}
}

func TestWithoutIPv6TheRestIsListenedOn(t *testing.T) {
	// An address of nobody here stands for ::1 where IPv6 is off: both are
	// EADDRNOTAVAIL.
	s, skipped := opened(t, Outbound, "127.0.0.1:0", "[2001:db8::77]:4140")
	if len(s[Outbound]) != 1 || len(skipped) != 1 || skipped[0].String() != "[2001:db8::77]:4140" {
		t.Errorf("open %v, skipped %v", s, skipped)
	}
	before := openFDs(t)
	if _, err := s.Open(Inbound, skipped); err == nil || !strings.Contains(err.Error(), "no address of [[2001:db8::77]:4140] can be had") {
		t.Errorf("nothing but skipped addresses: %v", err)
	}
	if _, err := s.Open(Inbound, []netip.AddrPort{netip.MustParseAddrPort("192.0.2.77:4140")}); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("an IPv4 address of nobody: %v", err)
	}
	if after := openFDs(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

func TestWhereThereIsNoIPv6TheUnspecifiedAddressIsThatOfIPv4(t *testing.T) {
	lab.Alone(t, func() {
		s := Sockets{}
		defer s.Close()
		skipped, err := s.Open(Inbound, []netip.AddrPort{netip.MustParseAddrPort("[::]:0"), netip.MustParseAddrPort("[::1]:0")})
		if err != nil {
			t.Error(err)
			return
		}
		if len(s[Inbound]) != 1 || len(skipped) != 1 || skipped[0].Addr() != netip.IPv6Loopback() {
			t.Errorf("open %v, skipped %v", s, skipped)
		}
	})
}

func TestWhatIsHandedOverIsWhatIsInherited(t *testing.T) {
	s, _ := opened(t, Inbound, "127.0.0.1:0")
	for _, name := range []string{Outbound, Outbound, Admin} {
		if _, err := s.Open(name, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Inherited(s.Handover())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(s, got); d != "" {
		t.Error(d)
	}
	if got, err := Inherited(""); err != nil || len(got) != 0 {
		t.Errorf("nothing handed over: %v, %v", got, err)
	}
}

func TestWhatIsNoListenerIsNotInherited(t *testing.T) {
	s, _ := opened(t, Inbound, "127.0.0.1:0")
	good := s.Handover()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	plain, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(plain)
	for value, words := range map[string]string{
		"inbound":                            "is not NAME=DESCRIPTOR",
		"inbound=":                           "is not NAME=DESCRIPTOR",
		"inbound=x":                          "is not NAME=DESCRIPTOR",
		good + ",":                           `"" is not NAME=DESCRIPTOR`,
		"sideways=3":                         `"sideways=3" is not`,
		"inbound=-1":                         "descriptor -1 is no listening socket",
		"inbound=19998":                      "descriptor 19998 is no listening socket",
		"admin=" + strconv.Itoa(int(f.Fd())): "is no listening socket",
		"outbound=" + strconv.Itoa(plain):    "is no listening socket",
		good + ",outbound=" + strconv.Itoa(plain): "is no listening socket",
	} {
		if got, err := Inherited(value); err == nil || !strings.Contains(err.Error(), words) || !strings.Contains(err.Error(), Env) {
			t.Errorf("%q: %v, %v; want %s", value, got, err, words)
		}
	}
}

// TestListenersSurviveAnExec hands a listener to another process, which answers
// on it; a client that connects in between waits and is served.
func TestListenersSurviveAnExec(t *testing.T) {
	s, _ := opened(t, Inbound, "127.0.0.1:0")
	fd := s[Inbound][0]
	early, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(portOf(t, fd)))))
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	file := os.NewFile(uintptr(dup), "listener")
	defer file.Close()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.ExtraFiles = []*os.File{file}
	cmd.Env = append(os.Environ(), "LISTEN_TEST_CHILD=1", Env+"="+Sockets{Inbound: {3}}.Handover())
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := early.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(early); err != nil || string(b) != "inherited" {
		t.Errorf("read %q, %v", b, err)
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// child serves one connection of an inherited listener.
func child() int {
	s, err := Inherited(os.Getenv(Env))
	if err != nil {
		println(err.Error())
		return 1
	}
	fd := s[Inbound][0]
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err != nil || flags&unix.FD_CLOEXEC == 0 {
		println("would be handed on to the next program")
		return 1
	}
	l, err := net.FileListener(os.NewFile(uintptr(fd), "inherited"))
	if err != nil {
		println(err.Error())
		return 1
	}
	c, err := l.Accept()
	if err != nil {
		println(err.Error())
		return 1
	}
	defer c.Close()
	if _, err := io.WriteString(c, "inherited"); err != nil {
		println(err.Error())
		return 1
	}
	return 0
}

func TestCloseClosesAndForgets(t *testing.T) {
	before := openFDs(t)
	s := Sockets{}
	for _, name := range []string{Inbound, Outbound} {
		if _, err := s.Open(name, []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:0")}); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	s.Close()
	if len(s) != 0 || openFDs(t) != before {
		t.Errorf("%v, %d descriptors before, %d after", s, before, openFDs(t))
	}
}

func openFDs(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
