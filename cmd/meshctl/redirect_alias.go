package main

import (
	"strconv"

	"github.com/spf13/pflag"
)

// alias is a flag under a name that linkerd2-proxy-init has for it. It sets the
// flag that it stands for.
type alias struct {
	name, short string
	kind        string // the type's name, as pflag shows it; "bool" needs no value
	set         func(string) error
}

// String, Set, Type and IsBoolFlag make it a pflag.Value.
func (a *alias) String() string         { return "" }
func (a *alias) Set(value string) error { return a.set(value) }
func (a *alias) Type() string           { return a.kind }

// registerAliases adds the flags of linkerd2-proxy-init that have other names
// here, hidden: the binary can stand in its place as an init container. Its
// port lists are read by its own narrower grammar.
func (o *redirectFlags) registerAliases(f *pflag.FlagSet) {
	set := func(flag string) func(string) error { return func(v string) error { return f.Set(flag, v) } }
	list := func(flag string) func(string) error {
		return func(v string) error {
			o.rules.strict[flag] = true
			return f.Set(flag, v)
		}
	}
	for _, a := range []*alias{
		{name: "incoming-proxy-port", kind: "uint16", set: set("inbound-port")},
		{name: "outgoing-proxy-port", kind: "uint16", set: set("outbound-port")},
		{name: "ports-to-redirect", kind: "string", set: list("only-inbound-ports")},
		{name: "inbound-ports-to-ignore", kind: "string", set: list("skip-inbound-ports")},
		{name: "outbound-ports-to-ignore", kind: "string", set: list("skip-outbound-ports")},
		{name: "subnets-to-ignore", kind: "strings", set: set("skip-subnets")},
		{name: "simulate", kind: "bool", set: set("dry-run")},
		{name: "use-wait-flag", short: "w", kind: "bool", set: ignored}, // the lock is always waited for
		{name: "iptables-mode", kind: "string", set: o.setMode},
		{name: "timeout-close-wait-secs", kind: "int", set: o.setCloseWait},
	} {
		flag := f.VarPF(a, a.name, a.short, "linkerd2-proxy-init's name")
		flag.Hidden = true
		if a.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
}

func ignored(value string) error {
	_, err := strconv.ParseBool(value)
	return err
}

func (o *redirectFlags) setMode(mode string) error {
	switch mode {
	case "nft":
		o.backend = "iptables-nft"
	case "legacy":
		o.backend = "iptables-legacy"
	case "plain":
		o.backend = "iptables"
	default:
		return usagef("%q: want nft, legacy or plain", mode)
	}
	return nil
}

func (o *redirectFlags) setCloseWait(text string) error {
	seconds, err := strconv.ParseUint(text, 10, 31)
	o.closeWait = int(seconds)
	return err
}

// outputOrPort is -o, which is the form of --dry-run here and the outbound port
// at linkerd2-proxy-init: a number can only be the port.
type outputOrPort struct {
	o *redirectFlags
	f *pflag.FlagSet
}

// String, Set and Type make it a pflag.Value.
func (v *outputOrPort) String() string {
	if v.o == nil {
		return ""
	}
	return v.o.output
}

func (v *outputOrPort) Set(value string) error {
	if _, err := strconv.ParseUint(value, 10, 64); err == nil {
		return v.f.Set("outbound-port", value)
	}
	v.o.output = value
	return nil
}

func (v *outputOrPort) Type() string { return "string" }
