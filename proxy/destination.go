package proxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/destination"
	"github.com/meshctl/meshctl/proxy/metrics"
)

// Destination says which control plane to ask what a destination is. The zero value:
// none.
type Destination struct {
	Addrs []string // host:port of its replicas
	// Name is the identity that it has to show; empty: plaintext, on loopback only.
	Name string
	// Pod and Node are this proxy's; empty: not said.
	Pod, Node string
	Idle      time.Duration // how long what nobody asks for is watched; 0: 5 s
}

func (d Destination) validate(c Config) error {
	switch {
	case len(d.Addrs) == 0:
		return nil
	case len(c.Resources) > 0:
		return errors.New("resources from files and from a destination service: choose one")
	case d.Name != "" && c.IdentityDir == "" && c.SPIFFESocket == "":
		return errors.New("a destination service with a name needs an identity to show: files or a SPIFFE socket")
	case d.Name == "" && !allLoopback(d.Addrs):
		return fmt.Errorf("the destination service %v is asked by mTLS unless it is on loopback: which identity does it have?", d.Addrs)
	}
	return nil
}

func allLoopback(addrs []string) bool {
	for _, text := range addrs {
		host, _, err := net.SplitHostPort(text)
		if err != nil {
			return false
		}
		if a, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !a.IsLoopback()) {
			return false
		}
	}
	return true
}

// askDestination makes the control plane the source of targets.
func (p *Proxy) askDestination() error {
	d := p.cfg.Destination
	locals := &conn.Locals{}
	var secure func() (*tls.Config, error)
	if d.Name != "" {
		secure = destination.TLS(p.identity, d.Name)
	}
	client, err := destination.Open(destination.Config{
		Addrs: d.Addrs, TLS: secure, Namespace: p.cfg.Namespace, Pod: p.cfg.podName(), Node: d.Node, Opaque: p.cfg.OpaquePorts,
		Local: locals.Has, Idle: d.Idle, Log: p.cfg.Log,
	})
	if err != nil {
		return err
	}
	p.targets.client = client
	p.targets.cache = discovery.NewCache(discovery.CacheConfig{Idle: max(d.Idle, 5*time.Second)}, client)
	return nil
}

// followDestination keeps up with the control plane until ctx ends.
func (p *Proxy) followDestination(ctx context.Context) { p.targets.client.Run(ctx, p.targets.cache) }

// destinationNumbers are for a scrape; nil where no control plane is asked. The
// client is made after the metrics.
func (p *Proxy) destinationNumbers() func() metrics.ControlPlane {
	if len(p.cfg.Destination.Addrs) == 0 {
		return nil
	}
	return func() metrics.ControlPlane {
		if p.targets.client == nil {
			return metrics.ControlPlane{}
		}
		return metrics.ControlPlane(p.targets.client.Stats())
	}
}
