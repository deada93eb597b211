package redirect

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/internal/listen"
	"github.com/meshctl/meshctl/rules"
)

// Outcome is what became of a check. The zero value means "not said".
type Outcome uint8

// The outcomes.
const (
	Passed    Outcome = iota + 1
	Failed            // real traffic does not go where the plan says
	NotProbed         // it could not be tried here; Detail says why
)

// String is the outcome in a word or two.
func (o Outcome) String() string {
	switch o {
	case Passed:
		return "ok"
	case Failed:
		return "FAILED"
	case NotProbed:
		return "not probed"
	}
	return "not said"
}

// Check is one statement of the plan, tried with a real connection.
type Check struct {
	Name    string // "outbound IPv4 is redirected"
	Outcome Outcome
	Detail  string
}

// Report is all checks in the order they were made.
type Report []Check

// Failures are the checks that failed.
func (r Report) Failures() []Check {
	var out []Check
	for _, c := range r {
		if c.Outcome == Failed {
			out = append(out, c)
		}
	}
	return out
}

// Verifier has what Verify needs in a namespace: a link to a peer of its own.
type Verifier struct{ *scratch }

// NewVerifier makes the peer and the link; Close removes them. They need nothing
// outside of this machine. The error is for what keeps Verify from checking at
// all, and not for rights that allow only some of the checks.
func NewVerifier(ctx context.Context, ns *Namespace) (*Verifier, error) {
	s, err := newScratch(ctx, ns)
	if err != nil {
		return nil, err
	}
	return &Verifier{s}, nil
}

// Verify tries with real connections whether the namespace does what the plan
// says: both directions and families are redirected with the original
// destination known, a skipped port and the proxy's user stay direct.
//
// With listeners of Listen, not yet open, the connections are taken from them.
// Without (nil), a proxy is expected to serve the ports already, and the
// connections have to come out behind it.
func (vr *Verifier) Verify(ctx context.Context, plan rules.Plan, listeners *Listeners) Report {
	v := verification{scratch: vr.scratch, plan: plan, listeners: listeners, ctx: ctx}
	for _, v6 := range []bool{false, true} {
		v.family(v6)
	}
	return v.report
}

// verification is one run of Verify.
type verification struct {
	*scratch
	plan      rules.Plan
	listeners *Listeners
	ctx       context.Context
	report    Report
}

func (v *verification) family(v6 bool) {
	family := rules.IPv4
	if v6 {
		family = rules.IPv6
	}
	checks := []struct {
		name string
		run  func(bool) (string, error)
	}{
		{"outbound %s is redirected", v.outbound},
		{"inbound %s is redirected", v.inbound},
		{"a skipped outbound port stays direct, %s", v.skippedOutbound},
		{"a skipped inbound port stays direct, %s", v.skippedInbound},
		{"the proxy's user stays direct, %s", v.proxyUser},
	}
	for _, c := range checks {
		check := Check{Name: fmt.Sprintf(c.name, family), Outcome: Passed}
		detail, err := v.whole(v6, c.run)
		var not notProbed
		switch {
		case errors.As(err, &not):
			check.Outcome, check.Detail = NotProbed, string(not)
		case err != nil:
			check.Outcome, check.Detail = Failed, err.Error()
		default:
			check.Detail = detail
		}
		v.report = append(v.report, check)
	}
}

// notProbed is why a check could not be made.
type notProbed string

func (n notProbed) Error() string { return string(n) }

// whole makes a check unless its family cannot be probed.
func (v *verification) whole(v6 bool, run func(bool) (string, error)) (string, error) {
	switch {
	case v6 && v.plan.Config().NoIPv6:
		return "", notProbed("the plan leaves IPv6 alone")
	case v6 && v.noIPv6 != nil:
		return "", notProbed(v.noIPv6.Error())
	}
	return run(v6)
}

func (v *verification) outbound(v6 bool) (string, error) {
	if unix.Geteuid() == int(v.plan.Config().ProxyUID) {
		return "", notProbed("this is the proxy's own user")
	}
	to, err := v.port(v.outboundPacket(v6, v.far[v6]), "", rules.Redirect)
	if err != nil {
		return "", err
	}
	p := &probe{from: v.under, uid: -1, to: to, within: v.ctx}
	if v.listeners != nil {
		return v.taken(p, listen.Outbound, v6)
	}
	if v.peer == nil {
		return v.onlyAccepted(p)
	}
	return v.passedOn(p, v.peer)
}

func (v *verification) inbound(v6 bool) (string, error) {
	if v.peer == nil {
		return "", notProbed("a peer is needed: " + v.noPeer.Error())
	}
	packet := rules.Packet{Direction: rules.Inbound, Proto: rules.TCP, Src: netip.AddrPortFrom(v.far[v6], 1), Dst: netip.AddrPortFrom(v.near[v6], 1)}
	to, err := v.port(packet, "", rules.Redirect)
	if err != nil {
		return "", err
	}
	p := &probe{from: v.peer, uid: -1, to: to, within: v.ctx}
	if v.listeners != nil {
		return v.taken(p, listen.Inbound, v6)
	}
	return v.passedOn(p, v.under)
}

// taken expects the connection in the listener of a name.
func (v *verification) taken(p *probe, name string, v6 bool) (string, error) {
	fd, ok := v.listeners.of(name, v6)
	if !ok {
		return "", notProbed("the proxy does not listen there")
	}
	return p.intoListener(fd)
}

// passedOn expects a running proxy between the probe and an echo.
func (v *verification) passedOn(p *probe, at *Namespace) (string, error) {
	e, err := startEcho(at, p.to)
	if err != nil {
		return "", notProbed(err.Error())
	}
	defer e.stop()
	direct, detail, err := p.throughEcho(e)
	switch {
	case errors.Is(err, unix.ECONNREFUSED):
		return "", fmt.Errorf("%w: redirected, but no proxy listens", err)
	case err != nil:
		return "", err
	case direct:
		return "", errors.New("it went around the proxy: " + detail)
	}
	return detail, nil
}

// onlyAccepted is what is left without a peer: nothing is at the address, so
// that a connection which is accepted was redirected.
func (v *verification) onlyAccepted(p *probe) (string, error) {
	conn, err := p.dial()
	if err != nil {
		return "", err
	}
	defer conn.Close()
	return fmt.Sprintf("a connection to %s, where nothing is, was accepted", p.to), nil
}

func (v *verification) skippedOutbound(v6 bool) (string, error) {
	if v.peer == nil {
		return "", notProbed("a peer is needed: " + v.noPeer.Error())
	}
	to, err := v.port(v.outboundPacket(v6, v.far[v6]), "skip-outbound-ports", rules.Return)
	if err != nil {
		return "", err
	}
	return v.direct(&probe{from: v.under, uid: -1, to: to, within: v.ctx}, v.peer)
}

// skippedInbound tries every skipped port until one is free in the namespace:
// applications may have the others.
func (v *verification) skippedInbound(v6 bool) (string, error) {
	if v.peer == nil {
		return "", notProbed("a peer is needed: " + v.noPeer.Error())
	}
	config := v.plan.Config()
	tried := 0
	for _, r := range config.SkipInboundPorts.Union(config.ControlPorts).Ranges() {
		for port := uint32(r.Lo); port <= uint32(r.Hi) && tried < 64; port++ {
			tried++
			p := &probe{from: v.peer, uid: -1, to: netip.AddrPortFrom(v.near[v6], uint16(port)), within: v.ctx}
			detail, err := v.direct(p, v.under)
			if not := notProbed(""); !errors.As(err, &not) {
				return detail, err
			}
		}
	}
	return "", notProbed("no skipped port is free")
}

func (v *verification) proxyUser(v6 bool) (string, error) {
	if v.peer == nil {
		return "", notProbed("a peer is needed: " + v.noPeer.Error())
	}
	to, err := v.port(v.outboundPacket(v6, v.far[v6]), "", rules.Redirect)
	if err != nil {
		return "", err
	}
	return v.direct(&probe{from: v.under, uid: int(v.plan.Config().ProxyUID), to: to, within: v.ctx}, v.peer)
}

// direct expects the probe at an echo with nothing in between.
func (v *verification) direct(p *probe, at *Namespace) (string, error) {
	e, err := startEcho(at, p.to)
	if err != nil {
		return "", notProbed(err.Error())
	}
	defer e.stop()
	direct, detail, err := p.throughEcho(e)
	switch {
	case errors.Is(err, errNotOwner):
		return "", notProbed(err.Error())
	case err != nil:
		return "", err
	case !direct:
		return "", errors.New("it went by the proxy: " + detail)
	}
	return detail, nil
}

func (v *verification) outboundPacket(v6 bool, to netip.Addr) rules.Packet {
	return rules.Packet{
		Direction: rules.Outbound, Proto: rules.TCP, UID: uint32(unix.Geteuid()), GID: uint32(unix.Getegid()),
		Src: netip.AddrPortFrom(v.near[v6], 1), Dst: netip.AddrPortFrom(to, 1),
	}
}

// port finds a destination port, at random first, for which the plan decides
// as wanted, and by the rule named, if one is.
func (v *verification) port(packet rules.Packet, rule string, want rules.Verdict) (netip.AddrPort, error) {
	fits := func(port uint32) bool {
		packet.Dst = netip.AddrPortFrom(packet.Dst.Addr(), uint16(port))
		d := v.plan.Eval(packet)
		return d.Verdict == want && (rule == "" || d.Rule == rule)
	}
	for range 64 {
		if fits(10000 + rand.Uint32N(20000)) { // below the ports that clients get
			return packet.Dst, nil
		}
	}
	for port := uint32(1); port < 1<<16; port++ {
		if fits(port) {
			return packet.Dst, nil
		}
	}
	return netip.AddrPort{}, notProbed("the plan has no such port")
}
