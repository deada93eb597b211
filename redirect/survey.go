package redirect

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/rules"
	ipt "github.com/meshctl/meshctl/rules/iptables"
	nft "github.com/meshctl/meshctl/rules/nftables"
)

// survey is what netfilter holds in a namespace, found by reading alone: no
// program is run, and no table is named that is not there, because to name one
// would make it.
type survey struct {
	hidden   bool  // this user may not see which x_tables tables there are
	nfTables error // why nf_tables cannot be used; nil when it can
	nft      []chainRef
	legacy   []chainRef
	ipv6     bool // the kernel speaks IPv6 in this namespace
}

// chainRef is a chain, or a table that has none (Chain is empty then).
type chainRef struct {
	Family rules.Family // zero: a family of nf_tables alone
	Table  string
	Chain  string
}

// lookAround surveys the namespace. It fails when a right is missing.
func lookAround(ns *Namespace) (s survey, err error) {
	err = ns.Do(func() error {
		s.nft, s.nfTables = nftChains()
		if ClassOf(s.nfTables) == Permission {
			return &Error{Backend: NFTables.String(), Step: "reading the rules", Err: s.nfTables}
		}
		s.legacy, err = allLegacyChains()
		// The list of tables is root's to read, which CAP_NET_ADMIN does not change.
		if s.hidden = errors.Is(err, os.ErrPermission) && unix.Geteuid() != 0; s.hidden {
			err = nil
		}
		if err != nil {
			return &Error{Backend: IPTablesLegacy.String(), Step: "reading the rules", Err: err}
		}
		s.ipv6 = ipv6Present() == nil
		return nil
	})
	return s, err
}

func nftChains() ([]chainRef, error) {
	c, err := nftables.New(nftables.AsLasting())
	if err != nil {
		return nil, err
	}
	defer c.CloseLasting()
	tables, err := c.ListTables()
	if err != nil {
		return nil, err
	}
	var out []chainRef
	for _, t := range tables {
		out = append(out, chainRef{familyOf(t.Family), t.Name, ""})
	}
	chains, err := c.ListChains()
	if err != nil {
		return nil, err
	}
	for _, chain := range chains {
		out = append(out, chainRef{familyOf(chain.Table.Family), chain.Table.Name, chain.Name})
	}
	return out, nil
}

// familyOf is zero for the families that iptables programs do not have.
func familyOf(f nftables.TableFamily) rules.Family {
	switch f {
	case nftables.TableFamilyIPv4:
		return rules.IPv4
	case nftables.TableFamilyIPv6:
		return rules.IPv6
	}
	return 0
}

func allLegacyChains() ([]chainRef, error) {
	var out []chainRef
	for _, f := range []rules.Family{rules.IPv4, rules.IPv6} {
		tables, err := legacyTables(f)
		if err != nil {
			return nil, err
		}
		for _, table := range tables {
			out = append(out, chainRef{f, table, ""})
			chains, err := legacyChains(f, table)
			if err != nil {
				return nil, fmt.Errorf("table %s of %s: %w", table, f, err)
			}
			for _, chain := range chains {
				out = append(out, chainRef{f, table, chain})
			}
		}
	}
	return out, nil
}

// holds tells which backends have something of ours.
func (s survey) holds() []Kind {
	var out []Kind
	ours := chainRef{0, nft.TableName, ""}
	if slices.Contains(s.nft, ours) {
		out = append(out, NFTables)
	}
	if slices.ContainsFunc(s.nft, chainRef.isOurs) {
		out = append(out, IPTablesNFT)
	}
	if slices.ContainsFunc(s.legacy, chainRef.isOurs) {
		out = append(out, IPTablesLegacy)
	}
	return out
}

// isOurs tells the chains that iptables programs make for us.
func (c chainRef) isOurs() bool {
	for _, h := range []rules.Hook{rules.HookInvalid, rules.HookInbound, rules.HookOutbound} {
		if c.Family != 0 && c.Table == ipt.TableName(h) && c.Chain == ipt.ChainName(h) {
			return true
		}
	}
	return false
}

// tables are the tables of a backend for a family that are there.
func (s survey) tables(kind Kind, f rules.Family) []string {
	if kind == IPTablesLegacy && s.hidden {
		return []string{"mangle", "nat"} // asking makes them, and so would writing
	}
	refs := s.legacy
	if kind == IPTablesNFT {
		refs = s.nft
	}
	var out []string
	for _, r := range refs {
		if r.Family == f && r.Chain == "" {
			out = append(out, r.Table)
		}
	}
	return out
}

// OtherMeshError says that another mesh redirects in this namespace already.
type OtherMeshError struct {
	Found []string // chains and tables that it owns
}

// Error names what was found.
func (e *OtherMeshError) Error() string {
	return "another mesh has rules in this namespace: " + strings.Join(e.Found, ", ")
}

// meshPrefixes begin the names of chains that other meshes make.
var meshPrefixes = [...]string{"ISTIO_", "PROXY_INIT_", "CILIUM_", "KUMA_MESH_", "CONSUL_", "OSM_PROXY_", "istio-proxy", "kuma-mesh"}

// otherMesh is an *OtherMeshError when chains or tables of a known mesh are there.
func (s survey) otherMesh() error {
	var found []string
	for _, r := range slices.Concat(s.nft, s.legacy) {
		name := r.Chain
		if name == "" {
			name = r.Table
		}
		if slices.ContainsFunc(meshPrefixes[:], func(p string) bool { return strings.HasPrefix(name, p) }) {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return nil
	}
	slices.Sort(found)
	return &OtherMeshError{Found: slices.Compact(found)}
}

// lacksNFTables tells errors that mean "no nf_tables here" from failures.
func lacksNFTables(err error) bool {
	return ClassOf(err) == Unsupported || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT)
}

// ipv6Present is nil when the kernel speaks IPv6 in the thread's namespace, even
// if no device has an address: rules are then ready for when one has.
func ipv6Present() error {
	_, err := os.Stat("/proc/thread-self/net/if_inet6")
	return err
}
