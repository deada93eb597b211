package redirect

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/meshctl/meshctl/rules"
)

// Options are how rules are to be written. The zero value is Auto, without
// waiting for a lock.
type Options struct {
	Backend  Kind
	Wait     time.Duration // for the xtables lock, which only iptables-legacy takes; whole seconds
	NeedIPv6 bool          // IPv6 that cannot be redirected is an error and not a warning
	Force    bool          // write also beside another mesh
}

// Choice is the backend that rules of a namespace are written by, and those
// that hold rules of ours from earlier.
type Choice struct {
	Backend  Backend
	Why      string    // why it was chosen, in a clause
	Others   []Backend // hold rules of ours as well; Apply takes them out
	Warnings []string  // what a user should know, filled by Apply

	other error // another mesh, unless forced
}

// Pick chooses by reading alone. Auto follows the backend that holds our rules,
// else takes nftables where the kernel has it, else iptables-legacy.
func Pick(ctx context.Context, ns *Namespace, o Options) (*Choice, error) {
	around, err := lookAround(ns)
	if err != nil {
		return nil, err
	}
	c := &Choice{}
	if !o.Force {
		c.other = around.otherMesh()
	}
	kind, why, err := choose(ctx, ns, around, o.Backend)
	if err != nil {
		return nil, err
	}
	c.Why = why
	c.Backend = c.make(ns, kind, o)
	for _, k := range around.holds() {
		if k != kind {
			c.Others = append(c.Others, c.make(ns, k, o))
		}
	}
	return c, nil
}

func (c *Choice) make(ns *Namespace, kind Kind, o Options) Backend {
	if kind == NFTables {
		return nfTables{ns}
	}
	return ipTables{ns: ns, kind: kind, wait: o.Wait, needIPv6: o.NeedIPv6, warnings: &c.Warnings}
}

func choose(ctx context.Context, ns *Namespace, around survey, asked Kind) (kind Kind, why string, err error) {
	switch asked {
	case Auto, 0:
		return chooseAuto(around)
	case IPTables:
		path, err := exec.LookPath("iptables")
		if err != nil {
			return 0, "", &Error{Backend: asked.String(), Step: "looking for the program", Class: Unsupported, Err: err}
		}
		kind, err = kindOf(ctx, path)
		if err != nil {
			return 0, "", &Error{Backend: asked.String(), Step: "asking the program", Err: err}
		}
		return kind, path + " is of that kind", checkKind(around, kind)
	}
	return asked, "it was asked for", checkKind(around, asked)
}

// checkKind refuses a backend that the kernel lacks.
func checkKind(around survey, kind Kind) error {
	if kind != IPTablesLegacy && around.nfTables != nil {
		return &Error{Backend: kind.String(), Step: "asking the kernel for nf_tables", Class: Unsupported, Err: around.nfTables}
	}
	return nil
}

func chooseAuto(around survey) (Kind, string, error) {
	holds := around.holds()
	switch {
	case slices.Contains(holds, NFTables):
		return NFTables, "it holds our rules already", nil
	case len(holds) > 0 && hasProgram(holds[0]):
		return holds[0], "it holds our rules already", nil
	case around.nfTables == nil:
		return NFTables, "the kernel has nf_tables", nil
	case !lacksNFTables(around.nfTables):
		return 0, "", &Error{Backend: NFTables.String(), Step: "asking the kernel for nf_tables", Err: around.nfTables}
	case hasProgram(IPTablesLegacy):
		return IPTablesLegacy, "the kernel has no nf_tables", nil
	}
	return 0, "", &Error{
		Step: "choosing a backend", Class: Unsupported,
		Err: fmt.Errorf("the kernel has no nf_tables (%w) and there is no iptables-legacy program", around.nfTables),
	}
}

func hasProgram(kind Kind) bool {
	for _, name := range []string{kind.String(), "iptables"} {
		if _, err := exec.LookPath(name); err == nil {
			return true
		}
	}
	return false
}

// Apply writes the plan by the chosen backend and then takes older copies out
// of the others, in this order: at no moment is traffic not redirected. It
// refuses to write beside another mesh, with an *OtherMeshError.
func (c *Choice) Apply(ctx context.Context, plan rules.Plan) (changed bool, err error) {
	if c.other != nil {
		return false, c.other
	}
	c.Warnings = nil
	changed, err = c.Backend.Apply(ctx, plan)
	if err != nil {
		return false, err
	}
	for _, other := range c.Others {
		if _, err := other.Remove(ctx); err != nil {
			return true, fmt.Errorf("the rules are in place, but an older copy is left: %w", err)
		}
		changed = true
	}
	return changed, nil
}

// Remove takes our rules out of every backend that has some.
func (c *Choice) Remove(ctx context.Context) (changed bool, err error) {
	var failed []error
	for _, b := range append([]Backend{c.Backend}, c.Others...) {
		did, err := b.Remove(ctx)
		changed = changed || did
		failed = append(failed, err)
	}
	return changed, errors.Join(failed...)
}

// Read is the state of the chosen backend and of those that hold something.
func (c *Choice) Read(ctx context.Context) ([]State, error) {
	var states []State
	for _, b := range append([]Backend{c.Backend}, c.Others...) {
		s, err := b.Read(ctx)
		if err != nil {
			return nil, err
		}
		states = append(states, s)
	}
	return states, nil
}

// OtherNames are the backends that hold older copies, for people.
func (c *Choice) OtherNames() string {
	var names []string
	for _, b := range c.Others {
		names = append(names, b.Name())
	}
	return strings.Join(names, ", ")
}
