package redirect

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// probeTime bounds one probe; a good one takes less than a millisecond.
const probeTime = 2 * time.Second

// probe is one connection and where it has to arrive.
type probe struct {
	from   *Namespace
	uid    int // owner of the client's socket; -1 is our own
	to     netip.AddrPort
	within context.Context
}

// dial connects. The owner of a socket is the fsuid of the thread that opens
// it, and that is per thread (credentials(7)).
func (p *probe) dial() (*net.TCPConn, error) {
	var conn net.Conn
	err := p.from.Do(func() (err error) {
		if p.uid >= 0 {
			own, err := unix.SetfsuidRetUid(p.uid)
			if err != nil {
				return err
			}
			defer unix.Setfsuid(own)
			if now, err := unix.SetfsuidRetUid(-1); err != nil || now != p.uid {
				return errNotOwner
			}
		}
		dialer := net.Dialer{Timeout: probeTime}
		conn, err = dialer.DialContext(p.within, "tcp", p.to.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	tcp := conn.(*net.TCPConn)
	deadline := time.Now().Add(probeTime)
	return tcp, tcp.SetDeadline(deadline)
}

var errNotOwner = errors.New("CAP_SETUID is needed to connect as the proxy's user")

// newToken is a line that nobody else sends; no protocol begins like it, so
// that a proxy passes it on at once.
func newToken() string { return "meshctl-probe " + rand.Text() }

// intoListener connects and takes the connection from the proxy's own listener:
// the token must come out there, and the kernel must know where it was meant
// to go.
func (p *probe) intoListener(fd int) (detail string, err error) {
	conn, err := p.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	client := unmapped(conn.LocalAddr())
	token := newToken()
	if _, err := conn.Write([]byte(token)); err != nil {
		return "", err
	}
	accepted, err := acceptFrom(p.within, fd, client)
	if err != nil {
		return "", err
	}
	defer unix.Close(accepted)
	got, err := readExactly(p.within, accepted, len(token))
	if err != nil {
		return "", err
	}
	if got != token {
		return "", fmt.Errorf("other bytes came out than went in")
	}
	meant, err := originalDst(accepted, client.Addr().Is6())
	if err != nil {
		return "", fmt.Errorf("no original destination: %w", err)
	}
	if meant != p.to {
		return "", fmt.Errorf("the original destination is %s, not %s", meant, p.to)
	}
	return fmt.Sprintf("%s to %s reached the proxy's listener", client, p.to), nil
}

// throughEcho connects to an echo that is at the probe's address. Direct tells
// whether the echo saw the client itself, and not a proxy in between.
func (p *probe) throughEcho(e *echo) (direct bool, detail string, err error) {
	conn, err := p.dial()
	if err != nil {
		return false, "", err
	}
	defer conn.Close()
	token := newToken()
	if _, err := fmt.Fprintf(conn, "%s\n", token); err != nil {
		return false, "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err != nil {
		return false, "", fmt.Errorf("no answer: %w", err)
	}
	back, seen, _ := strings.Cut(strings.TrimSpace(line), ", ")
	if back != token {
		return false, "", fmt.Errorf("other bytes came back than went out")
	}
	client := unmapped(conn.LocalAddr()).String()
	return seen == client, fmt.Sprintf("%s to %s was seen there as %s", client, p.to, seen), nil
}

// echo answers one line with itself and with the address that it came from.
type echo struct {
	listener net.Listener
	done     chan struct{}
}

func startEcho(ns *Namespace, at netip.AddrPort) (*echo, error) {
	e := &echo{done: make(chan struct{})}
	err := ns.Do(func() (err error) {
		e.listener, err = net.Listen("tcp", at.String())
		return err
	})
	if err != nil {
		return nil, err
	}
	go e.serve()
	return e, nil
}

func (e *echo) serve() {
	defer close(e.done)
	for {
		conn, err := e.listener.Accept()
		if err != nil {
			return // closed
		}
		answer(conn)
	}
}

func answer(conn net.Conn) {
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(probeTime))
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err == nil {
		fmt.Fprintf(conn, "%s, %s\n", strings.TrimSpace(line), unmapped(conn.RemoteAddr()))
	}
}

func (e *echo) stop() {
	e.listener.Close()
	<-e.done
}

func unmapped(addr net.Addr) netip.AddrPort {
	a := addr.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// acceptFrom waits for the connection of one client. The gate lets nobody else
// in; who came before it was closed is let go.
func acceptFrom(ctx context.Context, listener int, client netip.AddrPort) (fd int, err error) {
	for {
		if err := waitReadable(ctx, listener); err != nil {
			return -1, fmt.Errorf("nothing arrived at the proxy's listener: %w", err)
		}
		fd, from, err := unix.Accept4(listener, unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		case err != nil:
			return -1, err
		case addrOf(from) == client:
			return fd, nil
		}
		unix.Close(fd)
	}
}

func addrOf(sockaddr unix.Sockaddr) netip.AddrPort {
	switch at := sockaddr.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(at.Addr).Unmap(), uint16(at.Port))
	}
	return netip.AddrPort{}
}

func readExactly(ctx context.Context, fd, n int) (string, error) {
	b := make([]byte, 0, n)
	for len(b) < n {
		if err := waitReadable(ctx, fd); err != nil {
			return "", err
		}
		more, err := unix.Read(fd, b[len(b):n])
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			return "", err
		case more == 0:
			return "", errors.New("the connection ended early")
		default:
			b = b[:len(b)+more]
		}
	}
	return string(b), nil
}

func waitReadable(ctx context.Context, fd int) error {
	deadline := time.Now().Add(probeTime)
	if until, ok := ctx.Deadline(); ok && until.Before(deadline) {
		deadline = until
	}
	for {
		left := time.Until(deadline)
		if left <= 0 {
			return context.DeadlineExceeded
		}
		events := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(events, int(left/time.Millisecond)+1)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		if n > 0 {
			return nil
		}
	}
}

// originalDst asks where a redirected connection was meant to go:
// SO_ORIGINAL_DST of netfilter, the same number for both families.
func originalDst(fd int, v6 bool) (netip.AddrPort, error) {
	const soOriginalDst = 80
	if v6 {
		b := make([]byte, unix.SizeofSockaddrInet6) // family, port, flow, address, scope
		err := getsockopt(fd, unix.SOL_IPV6, soOriginalDst, b)
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[8:24])), binary.BigEndian.Uint16(b[2:])), err
	}
	b := make([]byte, unix.SizeofSockaddrInet4) // family, port, address
	err := getsockopt(fd, unix.SOL_IP, soOriginalDst, b)
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), binary.BigEndian.Uint16(b[2:])), err
}
