package nftables

import (
	"encoding/binary"

	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/rules"
)

// reg is the register every value passes through, NFT_REG_1.
const reg = unix.NFT_REG_1

// ctInvalid is the bit of conntrack's verdict "invalid" in the ct state:
// NF_CT_STATE_INVALID_BIT of linux/netfilter/nf_conntrack_common.h.
const ctInvalid = 1

// Places of the fields matched, in bytes from the start of their header:
// RFC 791 section 3.1, RFC 8200 section 3, RFC 9293 section 3.1.
const (
	v4Src, v4Dst, v4Len       = 12, 16, 4
	v6Src, v6Dst, v6Len       = 8, 24, 16
	srcPort, dstPort, portLen = 0, 2, 2
	tcpFlags, flagsLen        = 13, 1
)

// exprs returns the machine code of one rule: the conditions, in the order in
// which matchText writes them, then the counter and the verdict.
func (r *Ruleset) exprs(rule rules.Rule, h rules.Hook) []expr.Any {
	m := rule.Match
	var out []expr.Any
	if m.Family != 0 {
		out = append(out, nfproto(m.Family)...)
	}
	out = append(out, ctState(m.CT)...)
	if m.Loopback {
		out = append(out, loopback(h)...)
	}
	if m.Proto != 0 {
		out = append(out, meta(expr.MetaKeyL4PROTO, []byte{m.Proto})...)
	}
	if m.UID != nil {
		out = append(out, meta(expr.MetaKeySKUID, binaryutil.NativeEndian.PutUint32(*m.UID))...)
	}
	if m.GID != nil {
		out = append(out, meta(expr.MetaKeySKGID, binaryutil.NativeEndian.PutUint32(*m.GID))...)
	}
	out = append(out, r.address(m.Src, v4Src, v6Src)...)
	out = append(out, r.address(m.Dst, v4Dst, v6Dst)...)
	out = append(out, r.port(m.SrcPorts, srcPort)...)
	out = append(out, r.port(m.DstPorts, dstPort)...)
	if m.Midway {
		out = append(out, midway()...)
	}
	out = append(out, &expr.Counter{})
	return append(out, verdict(rule)...)
}

// meta compares a fact about the packet with a value.
func meta(key expr.MetaKey, want []byte) []expr.Any {
	return []expr.Any{
		&expr.Meta{Key: key, Register: reg},
		&expr.Cmp{Op: expr.CmpOpEq, Register: reg, Data: want},
	}
}

func nfproto(f rules.Family) []expr.Any {
	family := byte(unix.NFPROTO_IPV4)
	if f == rules.IPv6 {
		family = unix.NFPROTO_IPV6
	}
	return meta(expr.MetaKeyNFPROTO, []byte{family})
}

// loopback matches the name, as the device may be made anew under another index.
func loopback(h rules.Hook) []expr.Any {
	key := expr.MetaKeyIIFNAME
	if h.Netfilter() == "output" {
		key = expr.MetaKeyOIFNAME
	}
	var name [unix.IFNAMSIZ]byte
	copy(name[:], "lo")
	return meta(key, name[:])
}

// ctState is what nft(8) makes of "ct state invalid" (any of these bits) and of
// "ct state != invalid" (not these bits exactly).
func ctState(v rules.Validity) []expr.Any {
	load := &expr.Ct{Key: expr.CtKeySTATE, Register: reg}
	mask := binaryutil.NativeEndian.PutUint32(ctInvalid)
	switch v {
	case rules.Invalid:
		return []expr.Any{load,
			&expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: 4, Mask: mask, Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: make([]byte, 4)},
		}
	case rules.NotInvalid:
		return []expr.Any{load, &expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: mask}}
	default:
		return nil
	}
}

// address looks an address of the network header up in s.
func (r *Ruleset) address(s rules.SubnetSet, v4, v6 uint32) []expr.Any {
	if s.Name == "" {
		return nil
	}
	load := &expr.Payload{DestRegister: reg, Base: expr.PayloadBaseNetworkHeader, Offset: v4, Len: v4Len}
	if s.Family == rules.IPv6 {
		load.Offset, load.Len = v6, v6Len
	}
	return append(nfproto(s.Family), load, r.lookup(s.Name))
}

// port looks a port of the TCP header up in s.
func (r *Ruleset) port(s rules.PortSet, offset uint32) []expr.Any {
	if s.Name == "" {
		return nil
	}
	return []expr.Any{
		&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: portLen},
		r.lookup(s.Name),
	}
}

// The flags of a packet that opens a connection, and those that are looked at:
// RFC 9293 section 3.1.
const (
	flagSYN       = 0x02
	flagsOfOpener = 0x17 // ACK, RST, SYN and FIN
)

// midway matches packets whose flags are not SYN alone.
func midway() []expr.Any {
	return []expr.Any{
		&expr.Payload{DestRegister: reg, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: flagsLen},
		&expr.Bitwise{SourceRegister: reg, DestRegister: reg, Len: flagsLen, Mask: []byte{flagsOfOpener}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: reg, Data: []byte{flagSYN}},
	}
}

func (r *Ruleset) lookup(set string) expr.Any {
	return &expr.Lookup{SourceRegister: reg, SetName: set, SetID: r.setID(set)}
}

func verdict(r rules.Rule) []expr.Any {
	switch r.Verdict {
	case rules.Redirect:
		return []expr.Any{
			&expr.Immediate{Register: reg, Data: binary.BigEndian.AppendUint16(nil, r.RedirectTo)},
			// The kernel adds the maximum itself; said here, a rule reads back as written.
			&expr.Redir{RegisterProtoMin: reg, RegisterProtoMax: reg, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED},
		}
	case rules.Drop:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
	default:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictReturn}}
	}
}
