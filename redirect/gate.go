package redirect

import (
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// The prefixes that Verify takes its addresses from. They are reserved for
// benchmarks and documentation (RFC 2544, RFC 3849), so that nobody else's
// connection comes from them, and hardly any skip list has them.
var (
	probePrefix4 = netip.MustParsePrefix("198.18.0.0/15")
	probePrefix6 = netip.MustParsePrefix("2001:db8:6d65:7368::/64")
)

// networkHeader is SKF_NET_OFF: a TCP socket's filter sees the packet from its
// TCP header on, and the IP header at this offset (socket(7), linux/filter.h).
const networkHeader = 1<<32 - 0x100000

// attachGate makes a listening socket drop every first packet that does not
// come from a probe's prefix. The senders try again a second later: nothing is
// refused, and nothing of theirs waits in the queue that Verify takes its own
// connections from.
func attachGate(fd int) error {
	prefix4 := probePrefix4.Addr().As4()
	prefix6 := probePrefix6.Addr().As16()
	program, err := bpf.Assemble([]bpf.Instruction{
		bpf.LoadAbsolute{Off: networkHeader, Size: 1},
		bpf.ALUOpConstant{Op: bpf.ALUOpShiftRight, Val: 4}, // the IP version
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 6, SkipTrue: 3},
		bpf.LoadAbsolute{Off: networkHeader + 12, Size: 4}, // IPv4 source
		bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: 0xfffe0000},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: word(prefix4[:]), SkipTrue: 4, SkipFalse: 5},
		bpf.LoadAbsolute{Off: networkHeader + 8, Size: 4}, // IPv6 source
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: word(prefix6[:4]), SkipFalse: 3},
		bpf.LoadAbsolute{Off: networkHeader + 12, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: word(prefix6[4:8]), SkipFalse: 1},
		bpf.RetConstant{Val: 1<<32 - 1},
		bpf.RetConstant{Val: 0},
	})
	if err != nil {
		return err
	}
	return attachFilter(fd, program)
}

func word(b []byte) uint32 {
	return uint32(b[0])<<24 | uint32(b[1])<<16 | uint32(b[2])<<8 | uint32(b[3])
}

func attachFilter(fd int, program []bpf.RawInstruction) error {
	filter := sockFilter(program)
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{
		Len: uint16(len(filter)), Filter: &filter[0],
	})
}

// sockFilter is a program in the form that the kernel takes.
func sockFilter(program []bpf.RawInstruction) []unix.SockFilter {
	filter := make([]unix.SockFilter, len(program))
	for i, ins := range program {
		filter[i] = unix.SockFilter{Code: ins.Op, Jt: ins.Jt, Jf: ins.Jf, K: ins.K}
	}
	return filter
}
