package nftables

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"

	"github.com/meshctl/meshctl/rules"
)

// set is a named interval set as both forms need it.
type set struct {
	name      string
	typ       nftables.SetDatatype
	intervals []interval
}

// interval is a part of a set: from start up to, and not including, end. An end
// of nil means that nothing follows: the first key after the last one, 65536 or
// an address beyond the highest, has no bytes.
type interval struct {
	start, end []byte
	text       string
}

// setsOf returns the named sets of p: those of ports first.
func setsOf(p rules.Plan) []set {
	var out []set
	for _, s := range p.PortSets() {
		out = append(out, set{s.Name, nftables.TypeInetService, portIntervals(s)})
	}
	for _, s := range p.SubnetSets() {
		typ := nftables.TypeIPAddr
		if s.Family == rules.IPv6 {
			typ = nftables.TypeIP6Addr
		}
		out = append(out, set{s.Name, typ, subnetIntervals(s.Subnets)})
	}
	return out
}

func portIntervals(s rules.PortSet) []interval {
	var out []interval
	for _, r := range s.Ports.Ranges() {
		iv := interval{start: portKey(r.Lo), text: r.String()}
		if r.Hi < 65535 {
			iv.end = portKey(r.Hi + 1)
		}
		out = append(out, iv)
	}
	return out
}

func portKey(p uint16) []byte { return binary.BigEndian.AppendUint16(nil, p) }

// subnetIntervals joins subnets that touch: the end of one and the start of the
// next would be two elements with one key. The subnets are sorted and disjoint.
func subnetIntervals(subnets []netip.Prefix) []interval {
	var out []interval
	for i := 0; i < len(subnets); {
		first, last := subnets[i], lastAddr(subnets[i])
		for i++; i < len(subnets) && subnets[i].Addr() == last.Next(); i++ {
			last = lastAddr(subnets[i])
		}
		iv := interval{start: first.Addr().AsSlice(), text: first.String()}
		if lastAddr(first) != last {
			iv.text = first.Addr().String() + "-" + last.String()
		} else if first.IsSingleIP() {
			iv.text = first.Addr().String()
		}
		if next := last.Next(); next.IsValid() {
			iv.end = next.AsSlice()
		}
		out = append(out, iv)
	}
	return out
}

// lastAddr returns the highest address of p.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	addr, _ := netip.AddrFromSlice(b)
	return addr
}

// elements returns the intervals as the kernel keeps them: a start and an end
// marker each. Like nft(8) it begins with an end marker at zero, so that a
// lookup below the first interval finds that it is outside.
func (s set) elements() []nftables.SetElement {
	zero := make([]byte, s.typ.Bytes)
	var out []nftables.SetElement
	if len(s.intervals) > 0 && string(s.intervals[0].start) != string(zero) {
		out = append(out, nftables.SetElement{Key: zero, IntervalEnd: true})
	}
	for _, iv := range s.intervals {
		out = append(out, nftables.SetElement{Key: iv.start})
		if iv.end != nil {
			out = append(out, nftables.SetElement{Key: iv.end, IntervalEnd: true})
		}
	}
	return out
}
