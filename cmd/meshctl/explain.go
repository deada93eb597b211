package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/rules"
)

// explainFlags are the flags of `meshctl explain`.
type explainFlags struct {
	inbound, outbound bool
	uid               uint32
	uidSaid           bool
	from              string
	netns             string
	output            string
	rules             ruleFlags
	proxy             proxyFlags
	access            accessFlags
	targets           targetFlags
}

// assumedUID stands for the application: any user that is not the proxy's.
const assumedUID = 1000

func newExplainCommand() *cobra.Command {
	e := &explainFlags{}
	cmd := &cobra.Command{
		Use:   "explain [flags] ADDRESS:PORT",
		Short: "Tell what will happen to a connection, by which rule, and why",
		Long: `Tell what will happen to a TCP connection: which rule decides, and what the proxy
then does. The connection is one that an application opens to ADDRESS:PORT; with
--inbound it is one that comes from the network to ADDRESS:PORT of the pod.

With --netns the rules are read from the kernel, and the settings from the proxy
that runs there. Otherwise the flags say what the rules are, as for "meshctl
redirect"; without any, the rules of the current namespace count if it has some.`,
		Example: `  meshctl explain 10.0.0.7:3306
  meshctl explain --skip-outbound-ports 3306 10.0.0.7:3306
  meshctl explain --netns pod --inbound --from 10.0.0.9 '[fd00::7]:8080'`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return e.run(cmd, args[0]) },
	}
	f := cmd.Flags()
	f.BoolVar(&e.outbound, "outbound", false, "a connection that the application opens (the default)")
	f.BoolVar(&e.inbound, "inbound", false, "a connection that comes from the network; ADDRESS is the pod's own")
	f.Uint32Var(&e.uid, "uid", assumedUID, "user that opens the connection, outbound")
	f.StringVar(&e.from, "from", "", "address of the client, inbound")
	f.StringVar(&e.netns, "netns", "", "network namespace to read the rules from, by name or path")
	f.StringVarP(&e.output, "output", "o", "text", "text or json")
	e.rules.register(f)
	e.registerProxy(f)
	e.targets.registerResources(f)
	e.access.register(cmd)
	return cmd
}

// explanation is the answer, as -o json writes it.
type explanation struct {
	rules.Explanation
	Target  *targetAnswer `json:"target,omitempty"`
	Access  *accessAnswer `json:"access,omitempty"`
	Proxy   *proxyAnswer  `json:"proxy,omitempty"`
	Known   string        `json:"known,omitempty"` // protocols that use the port, and who speaks first
	Rules   string        `json:"rules"`           // where the rules were taken from
	Assumed []string      `json:"assumed,omitempty"`
}

func (e *explainFlags) run(cmd *cobra.Command, target string) error {
	if e.output != "text" && e.output != "json" {
		return usagef("--output %q: want text or json", e.output)
	}
	e.uidSaid = cmd.Flags().Changed("uid")
	dst, err := parseTarget(target)
	if err != nil {
		return err
	}
	packet, err := e.packet(dst)
	if err != nil {
		return err
	}
	settings, err := e.proxySettings()
	if err != nil {
		return err
	}
	if err := e.ownPorts(&settings, cmd.Flags().Changed("opaque-ports")); err != nil {
		return err
	}
	from, err := e.source(cmd, settings.admin)
	if err != nil {
		return err
	}
	if from.settings != nil {
		settings = *from.settings
	}
	answer := e.explain(from, packet, settings)
	if err := e.explainTarget(&answer, from, packet, settings); err != nil {
		return err
	}
	if err := e.explainAccess(cmd, &answer, packet); err != nil {
		return err
	}
	if e.output == "json" {
		out := json.NewEncoder(cmd.OutOrStdout())
		out.SetIndent("", "  ")
		if err := out.Encode(answer); err != nil {
			return fmt.Errorf("writing the explanation: %w", err)
		}
		return nil
	}
	return answer.print(cmd.OutOrStdout())
}

// parseTarget reads ADDRESS:PORT. Addresses are taken without a zone: rules
// have none.
func parseTarget(text string) (netip.AddrPort, error) {
	target, err := netip.ParseAddrPort(text)
	if err != nil || target.Port() == 0 {
		return target, &usageError{
			err:  fmt.Errorf("%q is no address and port", text),
			hint: "as 10.0.0.7:3306 or [fd00::7]:3306",
		}
	}
	return netip.AddrPortFrom(target.Addr().Unmap().WithZone(""), target.Port()), nil
}

// packet is the connection that was asked about, as far as the flags tell.
func (e *explainFlags) packet(dst netip.AddrPort) (rules.Packet, error) {
	p := rules.Packet{Direction: rules.Outbound, Proto: rules.TCP, Dst: dst, UID: e.uid}
	switch {
	case e.inbound && e.outbound:
		return p, usagef("either --inbound or --outbound")
	case !e.inbound && e.from != "":
		return p, usagef("--from is for --inbound: no rule asks where an outbound connection comes from")
	case !e.inbound:
		p.Loopback = dst.Addr().IsLoopback() || dst.Addr().IsUnspecified()
		return p, nil
	case dst.Addr().IsLoopback() || dst.Addr().IsUnspecified():
		return p, usagef("nothing comes in to %s from the network", dst.Addr())
	}
	p.Direction, p.UID = rules.Inbound, 0
	if e.from == "" {
		return p, nil
	}
	src, err := parseClient(e.from)
	if err != nil {
		return p, err
	}
	if src.Addr().Is4() != dst.Addr().Is4() {
		return p, usagef("--from %s: a connection has one address family", e.from)
	}
	p.Src = src
	return p, nil
}

// parseClient reads an address with or without a port.
func parseClient(text string) (netip.AddrPort, error) {
	if src, err := netip.ParseAddrPort(text); err == nil {
		return netip.AddrPortFrom(src.Addr().Unmap().WithZone(""), src.Port()), nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil {
		return netip.AddrPort{}, &usageError{err: fmt.Errorf("--from %q is no address", text), hint: "as 10.0.0.9 or fd00::9"}
	}
	// The port is any of the client's; no rule asks for it.
	return netip.AddrPortFrom(addr.Unmap().WithZone(""), 40000), nil
}

// explain puts the answer together.
func (e *explainFlags) explain(from source, packet rules.Packet, settings proxySettings) explanation {
	local := packet.Loopback
	if packet.Direction == rules.Outbound && from.owns(packet.Dst.Addr()) {
		packet.Loopback, local = true, true
	}
	a := explanation{Rules: from.text, Explanation: from.explain(packet)}
	if packet.Direction == rules.Inbound {
		local = true
		if from.addrs != nil && !from.owns(packet.Dst.Addr()) {
			a.Assumed = append(a.Assumed, fmt.Sprintf("%s is an address of the pod; the namespace does not have it", packet.Dst.Addr()))
		}
		if c := from.plan.Config(); e.from == "" && len(c.SkipInboundSubnets) > 0 {
			a.Assumed = append(a.Assumed, "the client is in no skipped subnet (--from)")
		}
	} else if !e.uidSaid {
		a.Assumed = append(a.Assumed, fmt.Sprintf("the application's uid is %d (--uid)", assumedUID))
	}
	redirected := a.Verdict == rules.Redirect.String()
	a.Proxy = settings.answer(packet.Dst.Port(), local, redirected)
	if a.Proxy != nil && !redirected {
		a.Goes = "straight to where it is sent, and that is the proxy"
	}
	if a.Proxy != nil && a.Proxy.speaks() {
		a.Known = known(packet.Dst.Port())
	}
	return a
}

// explainTarget adds what the resources say of an outbound destination.
func (e *explainFlags) explainTarget(a *explanation, from source, packet rules.Packet, settings proxySettings) error {
	if packet.Direction != rules.Outbound || a.Proxy == nil || !a.Proxy.speaks() {
		return nil
	}
	target, err := e.target(packet.Dst, settings.opaque, from.owns)
	if err != nil || target == nil {
		return err
	}
	a.Target = target
	a.Proxy = target.overrule(a.Proxy, settings.waits(packet.Dst.Port()))
	if !a.Proxy.speaks() {
		a.Known = ""
	}
	return nil
}

// print writes the answer for people.
func (a explanation) print(w io.Writer) error {
	lines := a.Lines()
	if a.Target != nil {
		lines = append(lines, a.Target.lines()...)
	}
	if a.Proxy != nil {
		lines = append(lines, "  proxy    "+a.Proxy.Does)
		if a.Proxy.First != "" {
			lines = append(lines, "  waits    "+a.Proxy.First)
		}
	}
	if a.Access != nil {
		lines = append(lines, a.Access.lines()...)
	}
	if a.Known != "" {
		lines = append(lines, "  known    "+a.Known)
	}
	lines = append(lines, "  rules    "+a.Rules)
	if len(a.Assumed) > 0 {
		lines = append(lines, "  assumed  "+strings.Join(a.Assumed, "; "))
	}
	if _, err := io.WriteString(w, strings.Join(lines, "\n")+"\n"); err != nil {
		return fmt.Errorf("writing the explanation: %w", err)
	}
	return nil
}
