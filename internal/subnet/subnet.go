// Package subnet reads lists of subnets as flags and annotations write them.
package subnet

import (
	"fmt"
	"net/netip"
	"strings"
)

// Error says which item of a list is wrong, and why.
type Error struct {
	Item   string // the item as it was written, without the blanks around it
	Place  int    // its place in the list, from 1
	Reason string // what is wrong with it
}

// Error names the item, its place and the reason.
func (e *Error) Error() string {
	return fmt.Sprintf("item %d %q: %s", e.Place, e.Item, e.Reason)
}

// Parse reads a comma list of subnets of both families, such as
// "10.0.0.0/8, fd31::/64"; an address alone is a subnet of one. Host bits are
// masked off. Blanks around items and one trailing comma are allowed; the empty
// list gives nil. A wrong list gives a *Error and no subnets.
func Parse(list string) ([]netip.Prefix, error) {
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
		s, reason := parse(item)
		if reason != "" {
			return nil, &Error{Item: item, Place: i + 1, Reason: reason}
		}
		out = append(out, s)
	}
	return out, nil
}

// parse reads one subnet; reason is "" when it is a good one.
func parse(item string) (s netip.Prefix, reason string) {
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
	if reason := Wrong(s); reason != "" {
		return s, reason
	}
	return s.Masked(), ""
}

// Wrong returns why nothing can match s, "" if something can. The kernel
// never shows a packet with a v4-mapped address to a rule, so such a subnet
// would hold nothing.
func Wrong(s netip.Prefix) string {
	switch {
	case !s.IsValid():
		return "not a subnet"
	case s.Addr().Is4In6():
		return "an IPv4 subnet in IPv6 clothes: write it as IPv4"
	}
	return ""
}
