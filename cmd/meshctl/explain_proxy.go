package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/meshctl/meshctl/internal/knownports"
	"github.com/meshctl/meshctl/internal/listen"
	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/proxy"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/redirect"
)

// proxySettings are those of a proxy that matter to one connection.
type proxySettings struct {
	opaque         ports.Set
	opaqueWhy      string    // which list that is
	listeners      ports.Set // for redirected connections
	admin          ports.Set
	detectTimeout  time.Duration
	earlyDialAfter time.Duration // 0: never
}

// proxyAnswer is what the proxy does with a connection.
type proxyAnswer struct {
	Action string `json:"action"`          // opaque, detect, refuse or admin
	Does   string `json:"does"`            // in words
	First  string `json:"waits,omitempty"` // what the first byte may wait for
}

// speaks reports whether it matters who speaks first.
func (a *proxyAnswer) speaks() bool { return a.Action == "opaque" || a.Action == "detect" }

// registerProxy adds those flags of `meshctl proxy` that decide about a connection.
func (e *explainFlags) registerProxy(f *pflag.FlagSet) {
	e.proxy.cfg = proxy.DefaultConfig()
	all := &cobra.Command{}
	e.proxy.register(all)
	for _, name := range []string{"opaque-ports", "detect-timeout", "early-dial-after", "admin-listen"} {
		f.AddFlag(all.Flags().Lookup(name))
	}
}

// proxySettings are those of the flags.
func (e *explainFlags) proxySettings() (proxySettings, error) {
	s := proxySettings{
		detectTimeout: e.proxy.cfg.DetectTimeout, earlyDialAfter: e.proxy.cfg.EarlyDialAfter,
		listeners: ports.Of(e.rules.inboundPort, e.rules.outboundPort),
		opaqueWhy: "by default",
	}
	var err error
	if s.opaque, err = ports.ParseOver(e.proxy.opaquePorts, policy.DefaultOpaque()); err != nil {
		return s, usagef("--opaque-ports: %w", err)
	}
	if !s.opaque.Equal(policy.DefaultOpaque()) {
		s.opaqueWhy = "by --opaque-ports"
	}
	if s.detectTimeout <= 0 || s.earlyDialAfter < 0 {
		return s, usagef("--detect-timeout must be above 0, and --early-dial-after not below")
	}
	if e.proxy.adminListen == "" {
		return s, nil
	}
	s.admin, err = portsOf(e.proxy.adminListen)
	return s, err
}

// portsOf reads the ports of a list of listen addresses.
func portsOf(list string) (ports.Set, error) {
	addrs, err := listen.Parse(list)
	if err != nil {
		return ports.Set{}, usagef("--admin-listen: %w", err)
	}
	var set ports.Set
	for _, a := range addrs {
		set = set.Union(ports.Of(a.Port()))
	}
	return set, nil
}

// askProxy asks a proxy in the namespace for its settings, at the default admin
// port; nil if none answers.
func askProxy(ctx context.Context, ns *redirect.Namespace) *proxySettings {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var conn net.Conn
	err := ns.Do(func() (err error) {
		conn, err = new(net.Dialer).DialContext(ctx, "tcp", "127.0.0.1:4191")
		return err
	})
	if err != nil {
		return nil
	}
	defer conn.Close()
	client := http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return conn, nil },
	}}
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:4191/config", nil)
	if err != nil {
		return nil
	}
	answer, err := client.Do(ask)
	if err != nil {
		return nil
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return nil // another program's
	}
	return readSettings(io.LimitReader(answer.Body, 1<<16))
}

// readSettings reads what the admin port's /config says; nil if that is not a
// proxy of ours.
func readSettings(from io.Reader) *proxySettings {
	var c struct {
		InboundListen  []string `json:"inbound_listen"`
		OutboundListen []string `json:"outbound_listen"`
		AdminListen    []string `json:"admin_listen"`
		OpaquePorts    string   `json:"opaque_ports"`
		DetectTimeout  string   `json:"detect_timeout"`
		EarlyDialAfter string   `json:"early_dial_after"`
	}
	if json.NewDecoder(from).Decode(&c) != nil {
		return nil
	}
	s := &proxySettings{opaqueWhy: "in the proxy that runs there"}
	for _, l := range []struct {
		addrs []string
		to    *ports.Set
	}{{append(c.InboundListen, c.OutboundListen...), &s.listeners}, {c.AdminListen, &s.admin}} {
		set, err := portsOf(strings.Join(l.addrs, ","))
		if err != nil {
			return nil
		}
		*l.to = set
	}
	var failed [3]error
	s.opaque, failed[0] = ports.Parse(c.OpaquePorts)
	s.detectTimeout, failed[1] = time.ParseDuration(c.DetectTimeout)
	s.earlyDialAfter, failed[2] = time.ParseDuration(c.EarlyDialAfter)
	if failed != [3]error{} {
		return nil
	}
	return s
}

// answer tells what the proxy does with a connection to a port; local: at one
// of the pod's own addresses. It is nil when the proxy does not see it.
func (s proxySettings) answer(port uint16, local, redirected bool) *proxyAnswer {
	switch {
	case local && s.admin.Contains(port) && !redirected:
		return &proxyAnswer{Action: "admin", Does: "answers it itself: that is its admin port"}
	case local && s.listeners.Contains(port) && !redirected:
		return &proxyAnswer{Action: "refuse", Does: "refuses it: that is its own port, and no rule redirected it there"}
	case !redirected:
		return nil
	case local && s.listeners.Union(s.admin).Contains(port):
		return &proxyAnswer{Action: "refuse", Does: "refuses it: that is its own port, and it must not connect to itself"}
	case s.opaque.Contains(port):
		return &proxyAnswer{Action: "opaque", Does: fmt.Sprintf("passes it on as TCP at once: port %d is opaque %s", port, s.opaqueWhy)}
	}
	return &proxyAnswer{Action: "detect", Does: "tells the protocol from the client's first bytes", First: s.waits(port)}
}

// waits is what a connection that is not declared may wait for.
func (s proxySettings) waits(port uint16) string {
	early := s.earlyDialAfter > 0 && s.earlyDialAfter < s.detectTimeout
	switch who := first(port); {
	case who == knownports.Client:
		return "nothing, as the client speaks first"
	case who == knownports.Server && early:
		return fmt.Sprintf("%s the first time, until the server is heard; nothing after that", inWords(s.earlyDialAfter))
	case who == knownports.Server:
		return fmt.Sprintf("%s, each time; then it is passed on as TCP", inWords(s.detectTimeout))
	case early:
		return fmt.Sprintf("nothing; if the server speaks first, %s, the first time only", inWords(s.earlyDialAfter))
	}
	return fmt.Sprintf("nothing; if the server speaks first, %s, each time", inWords(s.detectTimeout))
}

// inWords writes a time with a blank before its unit, where it has one unit.
func inWords(d time.Duration) string {
	switch {
	case d < time.Second && d%time.Millisecond == 0:
		return fmt.Sprintf("%d ms", d/time.Millisecond)
	case d < time.Minute && d%time.Second == 0:
		return fmt.Sprintf("%d s", d/time.Second)
	}
	return d.String()
}

// first is who speaks first on a port, if the table says one thing.
func first(port uint16) knownports.Speaker {
	entries := knownports.Find(strconv.Itoa(int(port)))
	if len(entries) != 1 {
		return knownports.Unsaid
	}
	return entries[0].First
}

// known is what customarily uses a port; empty if the table has nothing.
func known(port uint16) string {
	var out []string
	for _, e := range knownports.Find(strconv.Itoa(int(port))) {
		who := map[knownports.Speaker]string{
			knownports.Client: "the client speaks first", knownports.Server: "the server speaks first",
			knownports.Either: "either side may speak first",
		}[e.First]
		out = append(out, fmt.Sprintf("%s: %s", e.Title, who))
	}
	return strings.Join(out, "; ")
}
