package nftables

import (
	"fmt"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/userdata"

	"github.com/meshctl/meshctl/rules"
)

// Ruleset is a Plan as netlink objects. Nothing in it was sent.
type Ruleset struct {
	Table  *nftables.Table
	Sets   []Set
	Chains []*nftables.Chain
	Rules  []*nftables.Rule // chain after chain, in order; the comment is in UserData
}

// Set is a named interval set and what it holds.
type Set struct {
	*nftables.Set
	Elements []nftables.SetElement // ascending, each start followed by its exclusive end
}

// Objects returns the netlink objects that give the same rules as Text.
func Objects(p rules.Plan) *Ruleset {
	r := &Ruleset{Table: Table()}
	for i, s := range setsOf(p) {
		r.Sets = append(r.Sets, Set{
			// The ID ties the rules of a transaction to its sets. Chosen here, it
			// does not come from the library's counter, which is not locked.
			Set:      &nftables.Set{Table: r.Table, ID: uint32(i + 1), Name: s.name, Interval: true, KeyType: s.typ},
			Elements: s.elements(),
		})
	}
	for _, c := range p.Chains() {
		chain := r.chain(c.Hook)
		r.Chains = append(r.Chains, chain)
		comments := p.Comments(c)
		for i, rule := range c.Rules {
			r.Rules = append(r.Rules, &nftables.Rule{
				Table: r.Table, Chain: chain, Exprs: r.exprs(rule, c.Hook),
				UserData: userdata.AppendString(nil, userdata.TypeComment, comments[i]),
			})
		}
	}
	return r
}

// Table returns the table that is ours.
func Table() *nftables.Table {
	return &nftables.Table{Name: TableName, Family: nftables.TableFamilyINet}
}

func (r *Ruleset) chain(h rules.Hook) *nftables.Chain {
	policy := nftables.ChainPolicyAccept
	c := &nftables.Chain{
		Name: h.String(), Table: r.Table, Type: nftables.ChainTypeFilter, Policy: &policy,
		Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityRef(nftables.ChainPriority(h.Priority())),
	}
	if h.NAT() {
		c.Type = nftables.ChainTypeNAT
	}
	if h.Netfilter() == "output" {
		c.Hooknum = nftables.ChainHookOutput
	}
	return c
}

// setID returns the ID of the set with that name, which the plan has.
func (r *Ruleset) setID(name string) uint32 {
	for _, s := range r.Sets {
		if s.Name == name {
			return s.ID
		}
	}
	panic("nftables: a rule asks for a set the plan does not hold: " + name)
}

// elementsAtOnce bounds the elements of one message: the list is one netlink
// attribute, whose length is 16 bits, and a v6 element takes 40 bytes.
const elementsAtOnce = 1000

// Queue puts the messages that replace the table's content into c; c.Flush then
// sends them as one transaction. The first AddTable lets DelTable succeed where
// there is no table yet.
func (r *Ruleset) Queue(c *nftables.Conn) error {
	c.AddTable(r.Table)
	c.DelTable(r.Table)
	c.AddTable(r.Table)
	for _, s := range r.Sets {
		if err := queueSet(c, s); err != nil {
			return err
		}
	}
	for _, chain := range r.Chains {
		c.AddChain(chain)
	}
	for _, rule := range r.Rules {
		c.AddRule(rule)
	}
	return nil
}

// queueSet puts a set and its elements into c.
func queueSet(c *nftables.Conn, s Set) error {
	if err := c.AddSet(s.Set, nil); err != nil {
		return fmt.Errorf("queueing set %s: %w", s.Name, err)
	}
	for part := range slices.Chunk(s.Elements, elementsAtOnce) {
		if err := c.SetAddElements(s.Set, part); err != nil {
			return fmt.Errorf("queueing the elements of set %s: %w", s.Name, err)
		}
	}
	return nil
}

// QueueRemove puts the messages that take the table out into c, whether or not
// there is one.
func QueueRemove(c *nftables.Conn) {
	c.AddTable(Table())
	c.DelTable(Table())
}
