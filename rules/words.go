package rules

import "net/netip"

// Family is an address family. The zero value means both, or "not said".
type Family uint8

// The families, by the numbers people call them.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// String returns "IPv4", "IPv6" or "any family".
func (f Family) String() string {
	switch f {
	case IPv4:
		return "IPv4"
	case IPv6:
		return "IPv6"
	default:
		return "any family"
	}
}

// familyOf returns the family of addr, and zero for no address.
func familyOf(addr netip.Addr) Family {
	switch {
	case addr.Is4():
		return IPv4
	case addr.Is6():
		return IPv6
	default:
		return 0
	}
}

// String returns "inbound", "outbound" or "no direction".
func (d Direction) String() string {
	switch d {
	case Inbound:
		return "inbound"
	case Outbound:
		return "outbound"
	default:
		return "no direction"
	}
}

// String returns the verdict as rule languages spell it: "return", "redirect",
// "drop", and "no verdict" for the zero value.
func (v Verdict) String() string {
	switch v {
	case Return:
		return "return"
	case Redirect:
		return "redirect"
	case Drop:
		return "drop"
	default:
		return "no verdict"
	}
}

// String returns the word that names the chain at h: "invalid", "inbound",
// "outbound", and "no hook" for the zero value.
func (h Hook) String() string {
	switch h {
	case HookInvalid:
		return "invalid"
	case HookInbound:
		return "inbound"
	case HookOutbound:
		return "outbound"
	default:
		return "no hook"
	}
}

// String returns "invalid", "not invalid" or "any state".
func (v Validity) String() string {
	switch v {
	case Invalid:
		return "invalid"
	case NotInvalid:
		return "not invalid"
	default:
		return "any state"
	}
}
