package mesh

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/integration/lab"
)

// tap is somebody who listens on a namespace's eth0: all that TCP carries there,
// by connection and direction, in order of their sequence numbers.
type tap struct {
	file    *os.File
	done    chan struct{}
	mu      sync.Mutex
	streams map[stream]*carried
	frames  int
}

// stream is one direction of a connection.
type stream struct{ from, to netip.AddrPort }

// carried is its bytes.
type carried struct {
	next  uint32 // sequence number
	began bool
	bytes []byte
}

// listen begins to listen; stop ends it.
func listen(t testing.TB, ns *lab.Namespace) *tap {
	t.Helper()
	p := &tap{done: make(chan struct{}), streams: map[stream]*carried{}}
	err := ns.Do(func() error {
		fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, int(htons(unix.ETH_P_ALL)))
		if err != nil {
			return err
		}
		p.file = os.NewFile(uintptr(fd), "tap")
		eth0, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(eth0)
		ifr, err := unix.NewIfreq("eth0")
		if err != nil {
			return err
		}
		if err := unix.IoctlIfreq(eth0, unix.SIOCGIFINDEX, ifr); err != nil {
			return err
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 256<<20); err != nil {
			return err
		}
		return unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: int(ifr.Uint32())})
	})
	must(t, err)
	go p.read()
	t.Cleanup(func() { p.file.Close(); <-p.done })
	return p
}

// htons is a number of two bytes as the kernel wants it here.
func htons(n uint16) uint16 {
	return binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, n))
}

func (p *tap) read() {
	defer close(p.done)
	b := make([]byte, 256<<10) // more than a frame has, also one that is segmented later
	for {
		n, err := p.file.Read(b)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENETDOWN) {
			continue
		}
		if err != nil {
			return
		}
		p.frame(b[:n])
	}
}

// frame takes the bytes of TCP over IPv4 (RFC 791, 9293).
func (p *tap) frame(b []byte) {
	if len(b) < 14+20+20 || binary.BigEndian.Uint16(b[12:]) != unix.ETH_P_IP || b[14+9] != unix.IPPROTO_TCP {
		return
	}
	ip := b[14:]
	if total := int(binary.BigEndian.Uint16(ip[2:])); total != 0 && total <= len(ip) {
		ip = ip[:total] // without the padding of Ethernet
	}
	tcp := ip[int(ip[0]&15)*4:]
	addr := func(b, port []byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b)), binary.BigEndian.Uint16(port))
	}
	key := stream{addr(ip[12:16], tcp), addr(ip[16:20], tcp[2:])}
	seq, flags, payload := binary.BigEndian.Uint32(tcp[4:]), tcp[13], tcp[int(tcp[12]>>4)*4:]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frames++
	if flags&2 != 0 { // SYN: a new connection
		p.streams[key] = &carried{next: seq + 1, began: true, bytes: p.before(key)}
		return
	}
	c := p.streams[key]
	if c == nil {
		c = &carried{}
		p.streams[key] = c
	}
	if !c.began {
		c.next, c.began = seq, true
	}
	if again := int32(c.next - seq); again > 0 { // sent a second time
		payload = payload[min(int(again), len(payload)):]
	}
	if len(payload) > 0 {
		c.bytes = append(c.bytes, payload...)
		c.next = seq + uint32(len(payload))
	}
}

// before is what an earlier connection between the same two ports has carried.
func (p *tap) before(s stream) []byte {
	if c := p.streams[s]; c != nil {
		return append(c.bytes, 0)
	}
	return nil
}

// settle waits until everything that was sent has been read, and fails the test if
// the kernel has dropped something.
func (p *tap) settle(t testing.TB) {
	t.Helper()
	last := -1
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(30 * time.Millisecond) {
		p.mu.Lock()
		n := p.frames
		p.mu.Unlock()
		if n == last {
			break
		}
		last = n
	}
	raw, err := p.file.SyscallConn()
	must(t, err)
	must(t, raw.Control(func(fd uintptr) {
		stats, err := unix.GetsockoptTpacketStats(int(fd), unix.SOL_PACKET, unix.PACKET_STATISTICS)
		if err != nil || stats.Drops != 0 {
			t.Errorf("the capture is not whole: %+v, %v", stats, err)
		}
	}))
}

// has reports whether words were on the wire.
func (p *tap) has(words string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.streams {
		if bytes.Contains(c.bytes, []byte(words)) {
			return true
		}
	}
	return false
}

// size is how many bytes of TCP were on the wire.
func (p *tap) size() (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.streams {
		n += len(c.bytes)
	}
	return n
}
