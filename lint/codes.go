package lint

import "strings"

// Code names a kind of finding. A code never changes its meaning; one that is no
// longer found is not given to anything else.
type Code string

// The codes.
const (
	Unreadable        Code = "MESH001"
	UnknownAnnotation Code = "MESH002"
	BadValue          Code = "MESH003"
	WrongObject       Code = "MESH004"
	NoEffect          Code = "MESH005"
	OpaqueAppProtocol Code = "MESH010"
	OpaqueMismatch    Code = "MESH011"
	NoSuchPortName    Code = "MESH012"
	ServerFirst       Code = "MESH013"
	SkipOutboundHere  Code = "MESH020"
	SkipInboundHere   Code = "MESH021"
	ProbeSkipped      Code = "MESH022"
	ProxyPortBlocked  Code = "MESH030"
	PortRulesBypassed Code = "MESH031"
	PodSecurity       Code = "MESH040"
	HostNetwork       Code = "MESH041"
	ProxyUID          Code = "MESH042"
	ProxyPortTaken    Code = "MESH043"
	JobNeverEnds      Code = "MESH044"
	SelectsNothing    Code = "MESH050"
	RefersToNothing   Code = "MESH051"
	PortNotServed     Code = "MESH052"
)

// Rule is what a code stands for.
type Rule struct {
	Code     Code
	Name     string
	Severity Severity
	Title    string // one sentence, without a full stop
}

// Rules returns every code with its meaning, in order. docs/lint.md has a section
// for each.
func Rules() []Rule {
	return []Rule{
		{Unreadable, "unreadable", Error, "A file is no YAML or JSON, or an object is none of its kind"},
		{UnknownAnnotation, "unknown-annotation", Warning, "An annotation in Linkerd's namespaces is misspelt or unknown"},
		{BadValue, "bad-annotation-value", Error, "An annotation has a value that cannot be read"},
		{WrongObject, "annotation-on-wrong-object", Warning, "An annotation is on an object where nobody reads it"},
		{NoEffect, "annotation-without-effect", Note, "An annotation is right, and meshctl has no use for it"},
		{OpaqueAppProtocol, "opaque-app-protocol", Warning, "An appProtocol makes a port opaque without saying so"},
		{OpaqueMismatch, "opaque-ports-differ", Warning, "A Service and its pods do not agree whether a port is opaque"},
		{NoSuchPortName, "no-such-port-name", Error, "A list of opaque ports names a port that is not there"},
		{ServerFirst, "server-first-undeclared", Note, "A port belongs to a protocol in which the server speaks first, and is not declared"},
		{SkipOutboundHere, "skip-outbound-on-server", Warning, "skip-outbound-ports is on the server's side of a port"},
		{SkipInboundHere, "skip-inbound-on-client", Warning, "skip-inbound-ports is on the client's side of a port"},
		{ProbeSkipped, "probe-on-skipped-port", Note, "A probe goes to a port that is kept away from the proxy"},
		{ProxyPortBlocked, "proxy-port-blocked", Error, "A NetworkPolicy lets application ports through and not the proxy's"},
		{PortRulesBypassed, "port-rules-bypassed", Warning, "A NetworkPolicy lets the proxy's port through, and with it every port behind it"},
		{PodSecurity, "pod-security", Error, "The Pod Security level of a namespace refuses the init container"},
		{HostNetwork, "host-network", Error, "A pod in the host's network cannot be meshed"},
		{ProxyUID, "proxy-uid", Error, "A container runs as the proxy's user, whose traffic is left alone"},
		{ProxyPortTaken, "proxy-port-taken", Error, "A container has a port that is the proxy's"},
		{JobNeverEnds, "job-never-ends", Warning, "A Job's proxy is no native sidecar, so that the Job does not end"},
		{SelectsNothing, "selects-nothing", Warning, "A Service or Server selects no workload"},
		{RefersToNothing, "refers-to-nothing", Warning, "A policy refers to an object that is not there"},
		{PortNotServed, "port-not-served", Warning, "A Server is for a port that its pods do not have"},
	}
}

// ruleOf is the rule of a code; every code has one.
func ruleOf(c Code) Rule {
	for _, r := range Rules() {
		if r.Code == c {
			return r
		}
	}
	return Rule{Code: c, Severity: Error}
}

// Anchor is the end of the address of the code's section in docs/lint.md.
func (r Rule) Anchor() string { return strings.ToLower(string(r.Code)) + "-" + r.Name }
