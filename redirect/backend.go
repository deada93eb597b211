package redirect

import (
	"context"
	"fmt"

	"github.com/meshctl/meshctl/rules"
)

// Backend is one way to put rules into the kernel of one namespace.
type Backend interface {
	// Name is "nftables", "iptables-nft" or "iptables-legacy".
	Name() string
	// Read tells what is there of ours and changes nothing.
	Read(ctx context.Context) (State, error)
	// Apply makes the kernel hold the plan, all of it or what was there before,
	// and nobody else's rules touched. Changed is false if it was in place.
	Apply(ctx context.Context, plan rules.Plan) (changed bool, err error)
	// Remove takes out what is ours. Changed is false if there was nothing.
	Remove(ctx context.Context) (changed bool, err error)
}

// Kind is a choice of backend. The zero value means "not said", which is Auto.
type Kind uint8

// The kinds.
const (
	Auto           Kind = iota + 1
	NFTables            // netlink; needs no program
	IPTablesNFT         // iptables programs that write nf_tables
	IPTablesLegacy      // iptables programs that write x_tables
	IPTables            // the iptables that is first in PATH, of either kind
)

var kindNames = map[Kind]string{
	Auto: "auto", NFTables: "nftables", IPTablesNFT: "iptables-nft", IPTablesLegacy: "iptables-legacy", IPTables: "iptables",
}

// String is the kind as flags write it.
func (k Kind) String() string {
	if name := kindNames[k]; name != "" {
		return name
	}
	return "not said"
}

// ParseKind reads what String writes.
func ParseKind(name string) (Kind, error) {
	for k, n := range kindNames {
		if n == name {
			return k, nil
		}
	}
	return 0, fmt.Errorf("unknown backend %q: auto, nftables, iptables-nft, iptables-legacy or iptables", name)
}
