// Package metrics holds every number the proxy exports, with Linkerd's names
// and labels where it has them and the prefix meshctl_ where it has not.
// families.go is the page that lists them all.
//
// Handles (TCP, HTTP) are looked up once a connection; what happens after that
// on the data path is atomic additions only: no lock, no map of strings, no
// allocation. A scrape reads the same atomics and never holds a lock longer
// than it takes to copy a list of pointers.
//
// What a peer writes never becomes a label without a bound: families are
// capped, what is over the cap is counted under "other", and series that
// nothing uses are dropped. The package records; it decides nothing, and the
// stages that do the work do not import it.
package metrics

import (
	"sync/atomic"
	"time"
)

// Config says what Metrics is told from outside. The zero value is useful.
type Config struct {
	Version string // of meshctl, for proxy_build_info
	GitSHA  string // commit of the build, for proxy_build_info

	// MaxSeries is how many live label sets a family may have before new ones
	// are folded into "other"; 2000 if not positive.
	MaxSeries int
	// MaxPorts is how many label sets meshctl_detect_total, which has the port
	// as a label, may have before port becomes "other"; 500 if not positive.
	MaxPorts int
	// MaxSNI is how many different server names (chosen by clients) may live as
	// label values at once before new ones become "other"; 100 if not positive.
	MaxSNI int
	// IdleAfter is how long a series is kept that no open connection uses;
	// 10 minutes if not positive, as Linkerd's METRICS_RETAIN_IDLE.
	IdleAfter time.Duration

	// SkipPackets reads the counters of the skip rules from the kernel, once a
	// scrape, from the scrape's goroutine. Nil, or an empty answer, leaves
	// meshctl_skip_packets_total out.
	SkipPackets func() []SkipCount
	// Kubernetes reads how much is known of the cluster, once a scrape; nil: its API is
	// not asked.
	Kubernetes func() Kubernetes
	// Balancers and Pools read the state of what the proxy balances, once a scrape;
	// nil: there is none.
	Balancers func() []Balancer
	Pools     func() []Pool
	// AccessLog says how many lines of it were written, and dropped; nil: there is none.
	AccessLog func() (written, dropped uint64)
	// Identity reads the state of the own certificate, once a scrape; nil: there is no
	// identity.
	Identity func() Identity
	// ControlPlane reads how asking it fares, once a scrape; nil: none is asked.
	ControlPlane func() ControlPlane

	// Now is the clock for IdleAfter; time.Now if nil.
	Now func() time.Time
}

func (c Config) withDefaults() Config {
	if c.MaxSeries <= 0 {
		c.MaxSeries = 2000
	}
	if c.MaxPorts <= 0 {
		c.MaxPorts = 500
	}
	if c.MaxSNI <= 0 {
		c.MaxSNI = 100
	}
	if c.IdleAfter <= 0 {
		c.IdleAfter = 10 * time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	return c
}

// SkipCount is what one skip rule of the kernel has counted.
type SkipCount struct {
	Direction Direction
	Rule      string // name of the rule, from the plan's closed set
	Packets   uint64 // first packets of connections: NAT rules see no others
}

// Metrics is the set of all numbers of one proxy. All methods are safe for
// concurrent use. Make one with New.
type Metrics struct {
	cfg  Config
	page *page

	tcp        *table[tcpKey, *TCP]
	http       *table[httpKey, *HTTP]
	room       room            // for what statuses add to targets
	foldedRoom room            // the same for targets that are folded, so that they keep their statuses
	durations  [2][2]histogram // connection durations by direction and peer
	sni        *names

	detectDuration [2]histogram
	tallies

	detecting          atomic.Int64
	serverFirstTargets atomic.Int64
	panics             atomic.Uint64
	grpcStatusMissing  atomic.Uint64
	draining           atomic.Bool
	resources          resources
	authz              authorizations
}

// New makes a Metrics in which nothing has happened yet.
func New(cfg Config) *Metrics {
	cfg = cfg.withDefaults()
	m := &Metrics{cfg: cfg, page: newPage(), sni: newNames(cfg.MaxSNI)}
	m.tcp = newTable(cfg.MaxSeries, m.newTCP)
	m.http = newTable(cfg.MaxSeries, m.newHTTP)
	m.authz.max = cfg.MaxSeries
	m.room.set(cfg.MaxSeries)
	m.foldedRoom.set(4 * perTarget) // four words for TLS, at most, fold apart
	for d := range m.durations {
		for p := range m.durations[d] {
			m.durations[d][p] = newHistogram(&m.page.latencyBounds)
		}
		m.detectDuration[d] = newHistogram(&m.page.detectBounds)
	}
	m.tallies = newTallies(m.page, cfg)
	return m
}

// Sweep forgets the series that no open connection uses and nothing has touched
// for IdleAfter before now. The owner calls it about once a minute; a scrape
// calls it too.
func (m *Metrics) Sweep(now time.Time) {
	before := now.Add(-m.cfg.IdleAfter)
	m.tcp.sweep(before, nil)
	m.http.sweep(before, dropped)
	m.detect.sweep(now, before)
	m.sni.keep(m.liveSNI())
}

// Detecting adds delta, +1 or -1, to the number of connections whose protocol
// is being detected.
func (m *Metrics) Detecting(delta int) { m.detecting.Add(int64(delta)) }

// SetServerFirstTargets says how many targets are remembered as speaking first.
func (m *Metrics) SetServerFirstTargets(n int) { m.serverFirstTargets.Store(int64(n)) }

// SetDraining says whether the proxy is draining.
func (m *Metrics) SetDraining(on bool) { m.draining.Store(on) }

// Panic counts a panic that ended one connection only.
func (m *Metrics) Panic() { m.panics.Add(1) }
