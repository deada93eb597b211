package proxy

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"github.com/meshctl/meshctl/internal/listen"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy/accesslog"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/kube"
	"github.com/meshctl/meshctl/proxy/metrics"
	"github.com/meshctl/meshctl/proxy/policy"
)

// SkipCount is what one skip rule of the kernel has counted.
type SkipCount = metrics.SkipCount

// Direction is the way a connection goes, as seen from the application.
type Direction = metrics.Direction

// The directions.
const (
	Inbound  = metrics.Inbound
	Outbound = metrics.Outbound
)

// Config is everything a proxy is told. DefaultConfig has the defaults.
type Config struct {
	InboundListen  []netip.AddrPort // connections from the network; [::] takes IPv4 too
	OutboundListen []netip.AddrPort // connections of the application; keep it on loopback
	AdminListen    []netip.AddrPort
	// Inherited holds listening sockets handed over by the process that wrote
	// the rules; a listener that is in it is not opened again.
	Inherited listen.Sockets

	OpaquePorts ports.Set
	// OpaquePortsSaid: they were asked for, so that they win over the annotation of
	// the pod.
	OpaquePortsSaid bool
	// Kubernetes is an API server that is asked for objects instead of Resources; nil:
	// none. The proxy fills in what it knows better: Cluster and Log.
	Kubernetes *kube.Config
	// Annotations is a file with the pod's own annotations, as the downward API
	// writes it; empty: none. Its opaque-ports count for what comes in, and change
	// with the file.
	Annotations string
	// Resources are files and directories of Kubernetes objects, which say what a
	// destination is; none: every destination is just an address.
	Resources []string
	// Destination is a control plane that says it instead.
	Destination Destination
	Namespace   string // of the pod; whose EgressNetworks and routes count
	// IdentityDir has tls.crt, tls.key and ca.crt; SPIFFESocket is where the SPIFFE
	// Workload API listens. From one of them the proxy has its certificate; neither: it
	// has none, and speaks no TLS.
	IdentityDir, SPIFFESocket string
	// LeaveTLS: an application's own TLS goes to meshed endpoints as it is, not once
	// more inside of the mesh's.
	LeaveTLS bool
	// TrustDomain ends the names of the identities of pods; empty: cluster.local.
	TrustDomain string

	Policy InboundPolicy // who may call

	DetectTimeout    time.Duration // then fail open
	EarlyDialAfter   time.Duration // 0: never
	ConnectTimeout   time.Duration
	IdleTimeout      time.Duration // of opaque connections; 0: never
	HalfCloseTimeout time.Duration // 0: never
	MaxDetecting     int           // 0: no limit

	Inbound, Outbound Times // what is said of one direction

	MaxHead int // of a request or response that is taken by itself, in bytes

	ShutdownGracePeriod time.Duration
	NoAdminShutdown     bool // no POST /shutdown on the admin port
	Pprof               bool
	FixedTarget         netip.AddrPort // for tests without rules
	// Intermediate has the requests of every outbound HTTP connection taken one by
	// one, also where there is no choice: for tests.
	Intermediate bool

	// AccessLog has a line written to AccessLogTo for each HTTP exchange and each
	// TCP connection; not said: none.
	AccessLog   accesslog.Format
	AccessLogTo io.Writer

	// SkipPackets reads what the skip rules in the kernel have counted, once a
	// scrape; nil where nobody may read them.
	SkipPackets func() []SkipCount

	Version string
	Log     *slog.Logger
}

// DefaultConfig returns Linkerd's defaults, and ours where Linkerd has none.
func DefaultConfig() Config {
	return Config{
		InboundListen:       []netip.AddrPort{netip.MustParseAddrPort("[::]:4143")},
		OutboundListen:      []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:4140"), netip.MustParseAddrPort("[::1]:4140")},
		AdminListen:         []netip.AddrPort{netip.MustParseAddrPort("[::]:4191")},
		OpaquePorts:         policy.DefaultOpaque(),
		Namespace:           "default",
		TrustDomain:         cluster.DefaultTrustDomain,
		DetectTimeout:       10 * time.Second,
		EarlyDialAfter:      250 * time.Millisecond,
		ConnectTimeout:      time.Second,
		HalfCloseTimeout:    time.Hour,
		MaxDetecting:        10_000,
		MaxHead:             64 << 10,
		ShutdownGracePeriod: 2 * time.Minute,
		Version:             "dev",
		Log:                 slog.New(slog.DiscardHandler),
	}
}

// Validate names the first field that cannot be.
func (c Config) Validate() error {
	for name, d := range map[string]time.Duration{"early dial": c.EarlyDialAfter, "idle": c.IdleTimeout,
		"inbound detection": c.Inbound.DetectTimeout, "outbound detection": c.Outbound.DetectTimeout,
		"inbound connect": c.Inbound.ConnectTimeout, "outbound connect": c.Outbound.ConnectTimeout,
		"half-close": c.HalfCloseTimeout, "shutdown grace": c.ShutdownGracePeriod} {
		if d < 0 {
			return fmt.Errorf("the %s time is negative: %s", name, d)
		}
	}
	if err := c.Destination.validate(c); err != nil {
		return err
	}
	switch {
	case c.DetectTimeout <= 0:
		return errors.New("the detection timeout must be positive: declare ports opaque to avoid the wait")
	case c.Kubernetes != nil && len(c.Resources) > 0:
		return errors.New("resources from files and from the Kubernetes API: choose one")
	case c.ConnectTimeout <= 0:
		return errors.New("the connect timeout must be positive")
	case c.MaxHead < 0:
		return errors.New("the limit of heads is negative")
	case c.MaxDetecting < 0:
		return errors.New("the limit of connections in detection is negative")
	case len(c.InboundListen) == 0 && len(c.OutboundListen) == 0:
		return errors.New("neither an inbound nor an outbound address to listen on")
	case c.AccessLog != 0 && c.AccessLogTo == nil:
		return errors.New("no place for the access log")
	case c.IdentityDir != "" && c.SPIFFESocket != "":
		return errors.New("an identity from files and one from a SPIFFE socket: choose one")
	case c.TrustDomain != "" && !dnsName(c.TrustDomain):
		return fmt.Errorf("the identity trust domain %q is no DNS name, such as cluster.local", c.TrustDomain)
	case c.Log == nil:
		return errors.New("no log to write to")
	}
	return nil
}

// own returns the ports the proxy listens on.
func (c *Config) own() ports.Set {
	var own []uint16
	for _, list := range [][]netip.AddrPort{c.InboundListen, c.OutboundListen, c.AdminListen} {
		for _, a := range list {
			own = append(own, a.Port())
		}
	}
	return ports.Of(own...)
}

// dnsName reports whether s is labels of letters, digits and hyphens (RFC 1123, 2.1).
func dnsName(s string) bool {
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for _, c := range []byte(label) {
			if c != '-' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z') {
				return false
			}
		}
	}
	return len(s) <= 253
}
