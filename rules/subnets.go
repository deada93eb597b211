package rules

import (
	"net/netip"
	"slices"
)

// covering returns the subnets of list with host bits masked off, sorted (IPv4
// first), without those that another one holds. Halves are joined to their whole.
func covering(list []netip.Prefix) []netip.Prefix {
	sorted := make([]netip.Prefix, len(list))
	for i, s := range list {
		sorted[i] = s.Masked()
	}
	slices.SortFunc(sorted, netip.Prefix.Compare)
	var out []netip.Prefix
	for _, s := range sorted {
		if n := len(out); n > 0 && out[n-1].Bits() <= s.Bits() && out[n-1].Contains(s.Addr()) {
			continue
		}
		out = append(out, s)
		for len(out) > 1 {
			whole, ok := joined(out[len(out)-2], out[len(out)-1])
			if !ok {
				break
			}
			out = append(out[:len(out)-2], whole)
		}
	}
	return out
}

// joined returns the subnet whose two halves are a and b; a sorts before b.
func joined(a, b netip.Prefix) (netip.Prefix, bool) {
	if a.Bits() != b.Bits() || a.Bits() == 0 || a.Addr().Is4() != b.Addr().Is4() {
		return netip.Prefix{}, false
	}
	whole := netip.PrefixFrom(a.Addr(), a.Bits()-1).Masked()
	return whole, whole.Contains(b.Addr())
}

// ofFamily returns the subnets of list that are of family f.
func ofFamily(list []netip.Prefix, f Family) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range list {
		if familyOf(s.Addr()) == f {
			out = append(out, s)
		}
	}
	return out
}
