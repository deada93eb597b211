package proxy

import (
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/meshctl/meshctl/proxy/admin"
)

// settings is the effective configuration as /config shows it; times are
// written as --flags take them.
type settings struct {
	Version             string           `json:"version"`
	InboundListen       []netip.AddrPort `json:"inbound_listen"`
	OutboundListen      []netip.AddrPort `json:"outbound_listen"`
	AdminListen         []netip.AddrPort `json:"admin_listen"`
	OpaquePorts         string           `json:"opaque_ports"`
	Annotations         string           `json:"annotations,omitempty"`
	Resources           []string         `json:"resources,omitempty"`
	Destination         []string         `json:"destination,omitempty"`
	Namespace           string           `json:"namespace"`
	IdentityDir         string           `json:"identity_dir,omitempty"`
	SPIFFESocket        string           `json:"spiffe_socket,omitempty"`
	TrustDomain         string           `json:"identity_trust_domain"`
	DetectTimeout       string           `json:"detect_timeout"`
	EarlyDialAfter      string           `json:"early_dial_after"`
	ConnectTimeout      string           `json:"connect_timeout"`
	InboundTimes        times            `json:"inbound"`
	OutboundTimes       times            `json:"outbound"`
	IdleTimeout         string           `json:"idle_timeout"`
	HalfCloseTimeout    string           `json:"half_close_timeout"`
	MaxDetecting        int              `json:"max_detecting"`
	ShutdownGracePeriod string           `json:"shutdown_grace_period"`
	AccessLog           string           `json:"access_log,omitempty"`
}

func (c Config) settings() settings {
	d := time.Duration.String
	return settings{
		Version: c.Version, InboundListen: c.InboundListen, OutboundListen: c.OutboundListen, AdminListen: c.AdminListen,
		OpaquePorts: c.OpaquePorts.String(), Annotations: c.Annotations, Resources: c.Resources, Namespace: c.Namespace, Destination: c.Destination.Addrs, TrustDomain: c.TrustDomain,
		IdentityDir: c.IdentityDir, SPIFFESocket: c.SPIFFESocket,
		DetectTimeout: d(c.DetectTimeout), EarlyDialAfter: d(c.EarlyDialAfter),
		ConnectTimeout: d(c.ConnectTimeout), InboundTimes: c.times(c.Inbound), OutboundTimes: c.times(c.Outbound), IdleTimeout: d(c.IdleTimeout), HalfCloseTimeout: d(c.HalfCloseTimeout),
		MaxDetecting: c.MaxDetecting, ShutdownGracePeriod: d(c.ShutdownGracePeriod), AccessLog: c.AccessLog.String(),
	}
}

func (p *Proxy) adminConfig() admin.Config {
	identity := p.identity
	shutdown := p.Shutdown
	if p.cfg.NoAdminShutdown {
		shutdown = nil
	}
	return admin.Config{
		Metrics:     p.metrics.Handler(p.cfg.Log),
		Ready:       func() bool { return !p.draining.Load() && identityMissing(identity) == "" }, // it answers only once all listeners are open
		NotReady:    func() string { return identityMissing(identity) },
		Log:         p.cfg.Log,
		Connections: p.connections(),
		Settings:    p.cfg.settings(),
		Shutdown:    shutdown,
		Profiles:    p.cfg.Pprof,
	}
}

// connections collects first and yields then, so that a slow reader holds no loop up.
func (p *Proxy) connections() iter.Seq[admin.Connection] {
	return func(yield func(admin.Connection) bool) {
		for _, c := range slices.Concat(p.inbound.Connections(), p.outbound.Connections()) {
			if !yield(c) {
				return
			}
		}
	}
}
