package annotation

import (
	"slices"
	"strings"
)

// Prefix begins the keys that this package knows; AlphaPrefix those of
// Linkerd's extensions.
const (
	Prefix      = "config.linkerd.io/"
	AlphaPrefix = "config.alpha.linkerd.io/"
)

// The keys that mean something here.
const (
	OpaquePorts       = Prefix + "opaque-ports"
	SkipInboundPorts  = Prefix + "skip-inbound-ports"
	SkipOutboundPorts = Prefix + "skip-outbound-ports"
	SkipSubnets       = Prefix + "skip-subnets"
	InboundPort       = Prefix + "inbound-port"
	OutboundPort      = Prefix + "outbound-port"
	AdminPort         = Prefix + "admin-port"
	ControlPort       = Prefix + "control-port"
	ProxyUID          = Prefix + "proxy-uid"
	ProxyGID          = Prefix + "proxy-gid"
	ShutdownGrace     = Prefix + "shutdown-grace-period"
	LogLevel          = Prefix + "proxy-log-level"
	LogFormat         = Prefix + "proxy-log-format"
	ConnectTimeout    = Prefix + "proxy-outbound-connect-timeout"
	// Those of one direction that Linkerd has; ConnectTimeout is outbound.
	InboundConnectTimeout   = Prefix + "proxy-inbound-connect-timeout"
	NoInboundDetectTimeout  = Prefix + "proxy-disable-inbound-protocol-detect-timeout"
	NoOutboundDetectTimeout = Prefix + "proxy-disable-outbound-protocol-detect-timeout"

	DefaultInboundPolicy = Prefix + "default-inbound-policy"
)

// Type is the form of a key's value. The zero value, Text, is any text.
type Type uint8

// The types of values.
const (
	Text       Type = iota // anything
	PortList               // "25,4444-4500,mysql": see Ports
	PlainPorts             // a port list without names
	Subnets                // "10.0.0.0/8,fd00::/8"
	Port                   // 1 to 65535
	ID                     // a user or group number
	Duration               // "10s", "2m": see ParseDuration
	Bool                   // true or false
	Policy                 // a default policy: all-unauthenticated ...
)

// String returns what the value of a key of that type has to be.
func (t Type) String() string {
	switch t {
	case PortList:
		return "a list of ports, ranges and names of ports"
	case PlainPorts:
		return "a list of ports and ranges"
	case Subnets:
		return "a list of subnets"
	case Port:
		return "a port"
	case ID:
		return "a user or group number"
	case Duration:
		return "a duration, such as 10s"
	case Bool:
		return "true or false"
	case Policy:
		return "a default policy, such as all-authenticated"
	default:
		return "text"
	}
}

// Known is a key that Linkerd documents.
type Known struct {
	Key  string
	Type Type
	Used bool // by meshctl; others are right, and without effect here
}

// known is sorted by key.
var known = [...]Known{
	{AlphaPrefix + "proxy-wait-before-exit-seconds", Text, false},
	{Prefix + "access-log", Text, false},
	{AdminPort, Port, true},
	{Prefix + "close-wait-timeout", Duration, false},
	{ControlPort, Port, true},
	{Prefix + "debug-image", Text, false},
	{Prefix + "debug-image-pull-policy", Text, false},
	{Prefix + "debug-image-version", Text, false},
	{DefaultInboundPolicy, Policy, true},
	{Prefix + "enable-debug-sidecar", Bool, false},
	{Prefix + "enable-external-profiles", Bool, false},
	{Prefix + "image-pull-policy", Text, false},
	{InboundPort, Port, true},
	{Prefix + "init-image", Text, false},
	{Prefix + "init-image-version", Text, false},
	{OpaquePorts, PortList, true},
	{OutboundPort, Port, true},
	{Prefix + "pod-inbound-ports", PlainPorts, false},
	{Prefix + "proxy-access-log", Text, false},
	{Prefix + "proxy-additional-env", Text, false},
	{Prefix + "proxy-admin-shutdown", Text, false},
	{Prefix + "proxy-await", Text, false},
	{Prefix + "proxy-cpu-limit", Text, false},
	{Prefix + "proxy-cpu-ratio-limit", Text, false},
	{Prefix + "proxy-cpu-request", Text, false},
	{NoInboundDetectTimeout, Bool, true},
	{NoOutboundDetectTimeout, Bool, true},
	{Prefix + "proxy-enable-native-sidecar", Bool, false},
	{Prefix + "proxy-ephemeral-storage-limit", Text, false},
	{Prefix + "proxy-ephemeral-storage-request", Text, false},
	{ProxyGID, ID, true},
	{Prefix + "proxy-image", Text, false},
	{InboundConnectTimeout, Duration, true},
	{Prefix + "proxy-inbound-discovery-cache-unused-timeout", Duration, false},
	{LogFormat, Text, true},
	{Prefix + "proxy-log-http-headers", Text, false},
	{LogLevel, Text, true},
	{Prefix + "proxy-memory-limit", Text, false},
	{Prefix + "proxy-memory-request", Text, false},
	{Prefix + "proxy-metrics-hostname-labels", Bool, false},
	{ConnectTimeout, Duration, true},
	{Prefix + "proxy-outbound-discovery-cache-unused-timeout", Duration, false},
	{Prefix + "proxy-outbound-transport-mode", Text, false},
	{Prefix + "proxy-require-identity-inbound-ports", PlainPorts, false},
	{ProxyUID, ID, true},
	{Prefix + "proxy-version", Text, false},
	{ShutdownGrace, Duration, true},
	{SkipInboundPorts, PlainPorts, true},
	{SkipOutboundPorts, PlainPorts, true},
	{SkipSubnets, Subnets, true},
}

// Find returns what is known of key.
func Find(key string) (Known, bool) {
	i, ok := slices.BinarySearchFunc(known[:], key, func(k Known, key string) int { return strings.Compare(k.Key, key) })
	if !ok {
		return Known{}, false
	}
	return known[i], true
}
