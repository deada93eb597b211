package redirect

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/rules"
)

// A segment that is out of the window is none that conntrack knows, so it is
// not translated, reaches a port where nobody listens, and the reset that
// answers it ends the redirected connection. The drop-invalid rule prevents it.
func TestASegmentOutOfTheWindowDoesNotEndARedirectedConnection(t *testing.T) {
	everyBackend(t, func(t *testing.T, pair *lab.Net, b Backend) {
		for _, keep := range []bool{false, true} {
			mustApply(t, b, plan(t, func(c *rules.Config) { c.KeepInvalid = keep }), true)
			if lives := survivesStraySegment(t, pair); lives == keep {
				t.Errorf("keeping invalid packets: %v; the connection lives: %v", keep, lives)
			}
		}
	})
}

// survivesStraySegment opens a redirected connection from the peer, sends a
// segment far out of its window, and tells whether the connection still works.
func survivesStraySegment(t *testing.T, pair *lab.Net) bool {
	t.Helper()
	l := pair.Pod.Listen(t, netip.MustParseAddrPort("0.0.0.0:4143"))
	defer l.Close()
	to := onPort(lab.PodV4, 8080)
	client, err := pair.Peer.Dial(lab.Owner{}, noAddr, to, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	sent, received := sequenceNumbers(t, client)
	stray := segment(unmapped(client.LocalAddr()), to, sent+1<<30, received)
	err = pair.Peer.Do(func() error {
		raw, err := net.Dial("ip4:tcp", to.Addr().String())
		if err != nil {
			return err
		}
		defer raw.Close()
		_, err = raw.Write(stray)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond) // for the reset, should there be one
	server.SetDeadline(time.Now().Add(time.Second))
	if _, err := client.Write([]byte("x")); err != nil {
		return false
	}
	_, err = server.Read(make([]byte, 1))
	return err == nil
}

// sequenceNumbers are the next ones of both directions (TCP_REPAIR, tcp(7)).
func sequenceNumbers(t *testing.T, conn *net.TCPConn) (sent, received uint32) {
	t.Helper()
	raw, err := conn.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	const off, receiveQueue, sendQueue = -1, 1, 2
	err = raw.Control(func(fd uintptr) {
		for queue, number := range map[int]*uint32{sendQueue: &sent, receiveQueue: &received} {
			set := func(option, value int) {
				if err := unix.SetsockoptInt(int(fd), unix.SOL_TCP, option, value); err != nil {
					t.Error(err)
				}
			}
			set(unix.TCP_REPAIR, 1)
			set(unix.TCP_REPAIR_QUEUE, queue)
			value, err := unix.GetsockoptInt(int(fd), unix.SOL_TCP, unix.TCP_QUEUE_SEQ)
			if err != nil {
				t.Error(err)
			}
			*number = uint32(value)
			set(unix.TCP_REPAIR, off) // and no window probe
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return sent, received
}

// segment is a TCP segment of one byte (RFC 9293 section 3.1).
func segment(from, to netip.AddrPort, seq, ack uint32) []byte {
	b := make([]byte, 21)
	binary.BigEndian.PutUint16(b[0:], from.Port())
	binary.BigEndian.PutUint16(b[2:], to.Port())
	binary.BigEndian.PutUint32(b[4:], seq)
	binary.BigEndian.PutUint32(b[8:], ack)
	b[12], b[13] = 5<<4, 0x18 // five words; PSH, ACK
	binary.BigEndian.PutUint16(b[14:], 1024)
	b[20] = 'z'
	src, dst := from.Addr().As4(), to.Addr().As4()
	pseudo := append(append(append([]byte{}, src[:]...), dst[:]...), 0, unix.IPPROTO_TCP, 0, byte(len(b)))
	binary.BigEndian.PutUint16(b[16:], checksum(append(append(pseudo, b...), 0)))
	return b
}

// checksum is the one's complement sum of RFC 1071.
func checksum(b []byte) uint16 {
	var sum uint32
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
