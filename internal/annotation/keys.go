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
	NoDetectTimeoutIn = Prefix + "proxy-disable-inbound-protocol-detect-timeout"
	NoDetectTimeout   = Prefix + "proxy-disable-outbound-protocol-detect-timeout"
	ConnectTimeoutIn  = Prefix + "proxy-inbound-connect-timeout"
	ConnectTimeout    = Prefix + "proxy-outbound-connect-timeout"
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

// keys returns all known keys, sorted.
func keys() []Known {
	list := []Known{
		{OpaquePorts, PortList, true}, {SkipInboundPorts, PlainPorts, true}, {SkipOutboundPorts, PlainPorts, true},
		{SkipSubnets, Subnets, true}, {InboundPort, Port, true}, {OutboundPort, Port, true}, {AdminPort, Port, true},
		{ControlPort, Port, true}, {ProxyUID, ID, true}, {ProxyGID, ID, true}, {ShutdownGrace, Duration, true},
		{LogLevel, Text, true}, {LogFormat, Text, true}, {NoDetectTimeoutIn, Bool, true}, {NoDetectTimeout, Bool, true},
		{ConnectTimeoutIn, Duration, true}, {ConnectTimeout, Duration, true},
		{AlphaPrefix + "proxy-wait-before-exit-seconds", Text, false},
	}
	for name, t := range map[string]Type{
		"access-log": Text, "close-wait-timeout": Duration, "debug-image": Text, "debug-image-pull-policy": Text,
		"debug-image-version": Text, "default-inbound-policy": Text, "enable-debug-sidecar": Bool,
		"enable-external-profiles": Bool, "image-pull-policy": Text, "init-image": Text, "init-image-version": Text,
		"pod-inbound-ports": PlainPorts, "proxy-access-log": Text, "proxy-additional-env": Text, "proxy-admin-shutdown": Text,
		"proxy-await": Text, "proxy-cpu-limit": Text, "proxy-cpu-ratio-limit": Text, "proxy-cpu-request": Text,
		"proxy-enable-native-sidecar": Bool, "proxy-ephemeral-storage-limit": Text, "proxy-ephemeral-storage-request": Text,
		"proxy-image": Text, "proxy-inbound-discovery-cache-unused-timeout": Duration, "proxy-log-http-headers": Text,
		"proxy-memory-limit": Text, "proxy-memory-request": Text, "proxy-metrics-hostname-labels": Bool,
		"proxy-outbound-discovery-cache-unused-timeout": Duration, "proxy-outbound-transport-mode": Text,
		"proxy-require-identity-inbound-ports": PlainPorts, "proxy-version": Text,
	} {
		list = append(list, Known{Prefix + name, t, false})
	}
	slices.SortFunc(list, func(a, b Known) int { return strings.Compare(a.Key, b.Key) })
	return list
}

// Keys returns every known key, sorted by name.
func Keys() []Known { return keys() }

// Find returns what is known of key.
func Find(key string) (Known, bool) {
	for _, k := range keys() {
		if k.Key == key {
			return k, true
		}
	}
	return Known{}, false
}
