package rules

import (
	"encoding/json"
	"net/netip"

	"github.com/meshctl/meshctl/internal/ports"
)

// The shape of a plan in JSON. Sets stand once, and rules name them, as in the
// kernel. Everything is a slice or a struct, so that the order never changes.
type planJSON struct {
	Hash     string      `json:"hash,omitempty"`
	Families []string    `json:"families"`
	Sets     []setJSON   `json:"sets"`
	Chains   []chainJSON `json:"chains"`
}

type setJSON struct {
	Name    string         `json:"name"`
	Ports   *ports.Set     `json:"ports,omitempty"`
	Subnets []netip.Prefix `json:"subnets,omitempty"`
}

type chainJSON struct {
	Name     string     `json:"name"`
	Hook     string     `json:"hook"`
	Priority int        `json:"priority"`
	NAT      bool       `json:"nat"`
	Rules    []ruleJSON `json:"rules"`
}

type ruleJSON struct {
	ID      string    `json:"id"`
	Match   matchJSON `json:"match"`
	Verdict string    `json:"verdict"`
	To      uint16    `json:"to,omitempty"`
	Why     string    `json:"why"`
}

type matchJSON struct {
	Family   string  `json:"family,omitempty"`
	Proto    uint8   `json:"proto,omitempty"`
	CTState  string  `json:"ct_state,omitempty"`
	Loopback bool    `json:"loopback,omitempty"`
	Midway   bool    `json:"midway,omitempty"`
	UID      *uint32 `json:"uid,omitempty"`
	GID      *uint32 `json:"gid,omitempty"`
	Src      string  `json:"src,omitempty"`
	Dst      string  `json:"dst,omitempty"`
	SrcPorts string  `json:"src_ports,omitempty"`
	DstPorts string  `json:"dst_ports,omitempty"`
}

// MarshalJSON writes the plan for machines: its hash, the families redirected,
// the named sets and the chains. Equal plans give equal bytes.
func (p Plan) MarshalJSON() ([]byte, error) {
	shape := p.shape()
	shape.Hash = p.Hash()
	return json.Marshal(shape)
}

// canonical returns the bytes that Hash and Equal stand on.
func (p Plan) canonical() []byte {
	b, err := json.Marshal(p.shape())
	if err != nil {
		panic("rules: a plan that cannot be written: " + err.Error()) // its types always can
	}
	return b
}

func (p Plan) shape() planJSON {
	out := planJSON{Sets: []setJSON{}, Chains: []chainJSON{}}
	for _, f := range p.Families() {
		out.Families = append(out.Families, f.String())
	}
	for _, s := range p.PortSets() {
		out.Sets = append(out.Sets, setJSON{Name: s.Name, Ports: &s.Ports})
	}
	for _, s := range p.SubnetSets() {
		out.Sets = append(out.Sets, setJSON{Name: s.Name, Subnets: s.Subnets})
	}
	for _, c := range p.chains {
		chain := chainJSON{c.Hook.String(), c.Hook.Netfilter(), c.Hook.Priority(), c.Hook.NAT(), []ruleJSON{}}
		for _, r := range c.Rules {
			chain.Rules = append(chain.Rules, r.shape())
		}
		out.Chains = append(out.Chains, chain)
	}
	return out
}

func (r Rule) shape() ruleJSON {
	m := matchJSON{
		Proto: r.Match.Proto, Loopback: r.Match.Loopback, Midway: r.Match.Midway, UID: r.Match.UID, GID: r.Match.GID,
		Src: r.Match.Src.Name, Dst: r.Match.Dst.Name,
		SrcPorts: r.Match.SrcPorts.Name, DstPorts: r.Match.DstPorts.Name,
	}
	if r.Match.Family != 0 {
		m.Family = r.Match.Family.String()
	}
	if r.Match.CT != 0 {
		m.CTState = r.Match.CT.String()
	}
	return ruleJSON{r.ID, m, r.Verdict.String(), r.RedirectTo, r.Why}
}
