package redirect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/rules"
	nft "github.com/meshctl/meshctl/rules/nftables"
)

// netlinkBuffer holds the largest plan there can be: 65,536 elements of about
// 28 bytes are sent as one transaction, which the kernel refuses to cut.
const netlinkBuffer = 4 << 20

// nfTables writes one table by netlink. A transaction is all or nothing, so
// there is no half state to recover from.
type nfTables struct{ ns *Namespace }

func (nfTables) Name() string { return NFTables.String() }

// conn runs use with a netlink connection inside the namespace.
func (b nfTables) conn(step string, use func(*nftables.Conn) error) error {
	return b.ns.Do(func() error {
		c, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(widen))
		if err == nil {
			defer c.CloseLasting()
			err = use(c)
		}
		if err != nil {
			failure := &Error{Backend: b.Name(), Step: step, Err: err}
			if errors.Is(err, unix.ENOENT) {
				failure.Class = Unsupported // an expression that the kernel does not know
			}
			return failure
		}
		return nil
	})
}

// widen makes room for large plans. An ordinary user's smaller limit may do.
func widen(c *netlink.Conn) error {
	_ = c.SetWriteBuffer(netlinkBuffer)
	_ = c.SetReadBuffer(netlinkBuffer)
	return nil
}

// Read implements Backend.
func (b nfTables) Read(ctx context.Context) (state State, err error) {
	err = b.conn("reading the rules", func(c *nftables.Conn) error {
		state, err = readTable(ctx, c)
		return err
	})
	return state, err
}

// readTable reads again when somebody changed the rules in between.
func readTable(ctx context.Context, c *nftables.Conn) (State, error) {
	for {
		state, err := readOnce(c)
		if err == nil || !isInterrupted(err) {
			return state, err
		}
		if err := ctx.Err(); err != nil {
			return state, err
		}
	}
}

// isInterrupted tells a dump that others' changes made inconsistent. The
// library loses the error's number on some ways.
func isInterrupted(err error) bool {
	return errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) || strings.Contains(err.Error(), "interrupted")
}

func readOnce(c *nftables.Conn) (State, error) {
	state := State{Backend: NFTables.String(), expected: expectedTable}
	// Tables are listed, because to ask for one that is not there is an error.
	tables, err := c.ListTablesOfFamily(nftables.TableFamilyINet)
	if err != nil {
		return state, err
	}
	state.Present = slices.ContainsFunc(tables, func(t *nftables.Table) bool { return t.Name == nft.TableName })
	if !state.Present {
		return state, nil
	}
	ruleset, err := readRuleset(c)
	if err != nil {
		return state, err
	}
	state.content = itemsOf(ruleset)
	state.readBack = func() []rules.Rule { return nft.Rules(ruleset) }
	var comments []string
	for _, r := range ruleset.Rules {
		id, _ := rules.ParseComment(nft.Comment(r))
		packets, bytes := nft.Counter(r)
		state.Counters = append(state.Counters, RuleCount{Chain: r.Chain.Name, ID: id, Packets: packets, Bytes: bytes})
		comments = append(comments, nft.Comment(r))
	}
	state.Hash = commonHash(comments)
	return state, nil
}

// readRuleset reads our table in the form that a plan is rendered in.
func readRuleset(c *nftables.Conn) (*nft.Ruleset, error) {
	out := &nft.Ruleset{Table: nft.Table()}
	sets, err := c.GetSets(out.Table)
	if err != nil {
		return nil, err
	}
	for _, s := range sets {
		elements, err := c.GetSetElements(s)
		if err != nil {
			return nil, err
		}
		out.Sets = append(out.Sets, nft.Set{Set: s, Elements: elements})
	}
	chains, err := c.ListChainsOfTableFamily(nftables.TableFamilyINet)
	if err != nil {
		return nil, err
	}
	for _, chain := range chains {
		if chain.Table.Name != nft.TableName {
			continue
		}
		out.Chains = append(out.Chains, chain)
		list, err := c.GetRules(out.Table, chain)
		if err != nil {
			return nil, err
		}
		for _, r := range list {
			r.Chain = chain
		}
		out.Rules = append(out.Rules, list...)
	}
	return out, nil
}

func expectedTable(plan rules.Plan) []item { return itemsOf(nft.Objects(plan)) }

// itemsOf puts a ruleset into comparable form.
func itemsOf(r *nft.Ruleset) []item {
	var sets, out []item
	for _, s := range r.Sets {
		sets = append(sets, item{"set " + s.Name, setCode(s)})
	}
	// The kernel lists sets by age, and age means nothing.
	slices.SortFunc(sets, func(a, b item) int { return strings.Compare(a.name, b.name) })
	for _, c := range r.Chains {
		out = append(out, item{"chain " + c.Name, chainCode(c)})
	}
	for _, rule := range r.Rules {
		out = append(out, item{ruleName(rule.Chain.Name, nft.Comment(rule)), nft.Code(rule)})
	}
	return append(sets, out...)
}

func chainCode(c *nftables.Chain) string {
	if c.Hooknum == nil || c.Priority == nil {
		return "no hook"
	}
	policy := nftables.ChainPolicyAccept
	if c.Policy != nil {
		policy = *c.Policy
	}
	return fmt.Sprintf("%s %d %d %d", c.Type, *c.Hooknum, *c.Priority, policy)
}

func setCode(s nft.Set) string {
	elements := slices.Clone(s.Elements)
	slices.SortFunc(elements, func(a, b nftables.SetElement) int { return strings.Compare(string(a.Key), string(b.Key)) })
	var b strings.Builder
	fmt.Fprintf(&b, "%s %v:", s.KeyType.Name, s.Interval)
	for _, e := range elements {
		fmt.Fprintf(&b, " %x", e.Key)
		if e.IntervalEnd {
			b.WriteByte('e')
		}
	}
	return b.String()
}

// Apply implements Backend.
func (b nfTables) Apply(ctx context.Context, plan rules.Plan) (changed bool, err error) {
	err = b.conn("writing the rules", func(c *nftables.Conn) error {
		state, err := readTable(ctx, c)
		if err != nil {
			return err
		}
		if state.Present && len(state.Drift(plan)) == 0 {
			return nil
		}
		changed = true
		if err := nft.Objects(plan).Queue(c); err != nil {
			return err
		}
		return c.Flush()
	})
	return changed && err == nil, err
}

// Remove implements Backend.
func (b nfTables) Remove(ctx context.Context) (changed bool, err error) {
	err = b.conn("removing the rules", func(c *nftables.Conn) error {
		state, err := readTable(ctx, c)
		if err != nil || !state.Present {
			return err
		}
		changed = true
		nft.QueueRemove(c)
		return c.Flush()
	})
	return changed && err == nil, err
}
