package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// SubnetError says which item of a subnet list is wrong, and why.
type SubnetError struct {
	Item   string // the item as it was written, without the blanks around it
	Place  int    // its place in the list, from 1
	Reason string // what is wrong with it
}

// Error names the item, its place and the reason.
func (e *SubnetError) Error() string {
	return fmt.Sprintf("subnet list: item %d %q: %s", e.Place, e.Item, e.Reason)
}

// ParseSubnets reads a comma list of subnets of both families, such as
// "10.0.0.0/8, fd31::/64"; an address alone is a subnet of one. Host bits are
// masked off. Blanks around items and one trailing comma are allowed; the empty
// list gives nil. A wrong list gives a *SubnetError and no subnets.
func ParseSubnets(list string) ([]netip.Prefix, error) {
	const blanks = " \t"
	if strings.Trim(list, blanks) == "" {
		return nil, nil
	}
	items := strings.Split(list, ",")
	if n := len(items); n > 1 && strings.Trim(items[n-1], blanks) == "" {
		items = items[:n-1]
	}
	out := make([]netip.Prefix, 0, len(items))
	for i, item := range items {
		item = strings.Trim(item, blanks)
		s, reason := parseSubnet(item)
		if reason != "" {
			return nil, &SubnetError{Item: item, Place: i + 1, Reason: reason}
		}
		out = append(out, s)
	}
	return out, nil
}

// parseSubnet reads one subnet; reason is "" when it is a good one.
func parseSubnet(item string) (s netip.Prefix, reason string) {
	if item == "" {
		return s, "empty item"
	}
	s, err := netip.ParsePrefix(item)
	if err != nil {
		addr, err := netip.ParseAddr(item)
		if err != nil || addr.Zone() != "" {
			return s, "not a subnet"
		}
		s = netip.PrefixFrom(addr, addr.BitLen())
	}
	if reason := wrongSubnet(s); reason != "" {
		return s, reason
	}
	return s.Masked(), ""
}

// wrongSubnet returns why s cannot be a set element, "" if it can. The kernel
// never shows a packet with a v4-mapped address to a rule, so such a subnet
// would hold nothing.
func wrongSubnet(s netip.Prefix) string {
	switch {
	case !s.IsValid():
		return "not a subnet"
	case s.Addr().Is4In6():
		return "an IPv4 subnet in IPv6 clothes: write it as IPv4"
	}
	return ""
}

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
