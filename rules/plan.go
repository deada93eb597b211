package rules

import "net/netip"

// Direction is the side of the proxy a connection comes from, as seen from the
// application. The zero value means "not said".
type Direction uint8

// The directions.
const (
	Inbound  Direction = iota + 1 // from the network to the local application
	Outbound                      // from the local application to the network
)

// Packet is the first packet of a connection (NAT sees no other), as the kernel
// sees it at the hook of its direction.
type Packet struct {
	Direction Direction
	Proto     uint8 // IP protocol number; 6 is TCP
	Src, Dst  netip.AddrPort
	UID, GID  uint32 // owner of the sending socket, outbound only
	Loopback  bool   // routed through lo, outbound only
	Invalid   bool   // conntrack calls the packet invalid
}
