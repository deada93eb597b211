package nftables

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/rules"
)

// Rules reads the rules of a ruleset back as far as rules.ConfigOf needs them:
// IDs, users, families, sets and the ports that are redirected to. What it does
// not understand it leaves out.
func Rules(r *Ruleset) []rules.Rule {
	out := make([]rules.Rule, 0, len(r.Rules))
	for _, kernel := range r.Rules {
		id, _ := rules.ParseComment(Comment(kernel))
		back := rules.Rule{ID: id}
		var key expr.MetaKey
		for _, e := range kernel.Exprs {
			switch e := e.(type) {
			case *expr.Meta:
				key = e.Key
			case *expr.Cmp:
				readFact(&back.Match, key, e.Data)
			case *expr.Lookup:
				r.readSet(&back.Match, e.SetName)
			case *expr.Immediate:
				if len(e.Data) == portLen {
					back.RedirectTo = binary.BigEndian.Uint16(e.Data)
				}
			}
		}
		out = append(out, back)
	}
	return out
}

// readFact is the reverse of meta.
func readFact(m *rules.Match, key expr.MetaKey, value []byte) {
	switch {
	case key == expr.MetaKeyNFPROTO && len(value) == 1 && value[0] == unix.NFPROTO_IPV4:
		m.Family = rules.IPv4
	case key == expr.MetaKeyNFPROTO && len(value) == 1 && value[0] == unix.NFPROTO_IPV6:
		m.Family = rules.IPv6
	case key == expr.MetaKeySKUID && len(value) == 4:
		m.UID = new(binaryutil.NativeEndian.Uint32(value))
	case key == expr.MetaKeySKGID && len(value) == 4:
		m.GID = new(binaryutil.NativeEndian.Uint32(value))
	}
}

// readSet puts what a set holds where the match has such sets. Whether it is
// about sources or destinations is known by the rule's ID.
func (r *Ruleset) readSet(m *rules.Match, name string) {
	i := slices.IndexFunc(r.Sets, func(s Set) bool { return s.Name == name })
	if i < 0 {
		return
	}
	intervals := intervalsOf(r.Sets[i].Elements)
	if r.Sets[i].KeyType.Name == nftables.TypeInetService.Name {
		m.DstPorts.Ports = portsOf(intervals)
		return
	}
	for _, iv := range intervals {
		m.Src.Subnets = append(m.Src.Subnets, subnetsOf(iv)...)
	}
	m.Dst = m.Src
}

// intervalsOf is the reverse of elements.
func intervalsOf(elements []nftables.SetElement) []interval {
	var out []interval
	for _, e := range ascending(elements) {
		switch n := len(out); {
		case !e.IntervalEnd:
			out = append(out, interval{start: e.Key})
		case n > 0:
			out[n-1].end = e.Key
		}
	}
	return out
}

// portsOf is the reverse of portIntervals; empty for what is none of ours.
func portsOf(intervals []interval) ports.Set {
	var list []string
	for _, iv := range intervals {
		if len(iv.start) != portLen {
			return ports.Set{}
		}
		lo, hi := binary.BigEndian.Uint16(iv.start), uint16(65535)
		if len(iv.end) == portLen {
			hi = binary.BigEndian.Uint16(iv.end) - 1
		}
		list = append(list, ports.Range{Lo: lo, Hi: hi}.String())
	}
	set, err := ports.Parse(strings.Join(list, ","))
	if err != nil {
		return ports.Set{}
	}
	return set
}

// subnetsOf cuts an interval into the fewest subnets.
func subnetsOf(iv interval) []netip.Prefix {
	at, ok := netip.AddrFromSlice(iv.start)
	end, _ := netip.AddrFromSlice(iv.end) // not valid: up to the highest address
	var out []netip.Prefix
	for ok && at.IsValid() && (!end.IsValid() || at.Less(end)) {
		widest := netip.PrefixFrom(at, at.BitLen())
		for bits := at.BitLen() - 1; bits >= 0; bits-- {
			wider := netip.PrefixFrom(at, bits)
			if wider.Masked() != wider || end.IsValid() && !lastAddr(wider).Less(end) {
				break
			}
			widest = wider
		}
		out = append(out, widest)
		at = lastAddr(widest).Next()
	}
	return out
}
