package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/meshctl/meshctl/proxy/identity"
	"github.com/meshctl/meshctl/proxy/metrics"
)

// remindOfIdentity is how often the log says that there is no certificate yet, as
// Linkerd's proxy does.
const remindOfIdentity = 15 * time.Second

// identify opens the source of the proxy's certificate, if it has one. Files that
// are there have to be in order; for what is not there yet the proxy waits, not
// ready.
func (p *Proxy) identify() (err error) {
	switch {
	case p.cfg.IdentityDir != "":
		p.identity, err = identity.Files(context.Background(), identity.FilesConfig{Dir: p.cfg.IdentityDir, Log: p.cfg.Log})
	case p.cfg.SPIFFESocket != "":
		p.identity, err = identity.Workload(context.Background(), identity.WorkloadConfig{Socket: p.cfg.SPIFFESocket, Log: p.cfg.Log})
	}
	return err
}

// closeIdentity ends following it.
func (p *Proxy) closeIdentity() {
	if p.identity == nil {
		return
	}
	if err := p.identity.Close(); err != nil {
		p.cfg.Log.Warn("closing the identity", "err", err)
	}
}

// identityNumbers reads the numbers of the certificate for a scrape; nil without an
// identity.
func (p *Proxy) identityNumbers() func() metrics.Identity {
	source := p.identity
	if source == nil {
		return nil
	}
	return func() metrics.Identity { return metrics.Identity(source.Stats()) }
}

// identityMissing says why there has been no certificate since the start; "": there
// was one, or none is wanted. One that has expired keeps nobody from being
// ready: plain connections go on, and mesh connections are refused one by one.
func identityMissing(source identity.Source) string {
	if source == nil || source.Stats().OK > 0 {
		return ""
	}
	_, err := source.Current()
	if err == nil {
		return "" // it came just now
	}
	return err.Error()
}

// awaitIdentity reminds of a missing certificate until there is one, or stop is
// called.
func (p *Proxy) awaitIdentity() (stop func()) {
	if identityMissing(p.identity) == "" {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var waiting sync.WaitGroup
	waiting.Go(func() { p.remind(ctx, p.identity) })
	return func() { cancel(); waiting.Wait() }
}

func (p *Proxy) remind(ctx context.Context, source identity.Source) {
	tick := time.NewTicker(remindOfIdentity)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		why := identityMissing(source)
		if why == "" {
			return
		}
		p.cfg.Log.Warn("Waiting for identity to be initialized...", "reason", why)
	}
}
