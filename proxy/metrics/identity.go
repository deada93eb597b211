package metrics

import "time"

// Identity is how the proxy's own certificate fares.
type Identity struct {
	NotAfter  time.Time // zero: there is none yet
	Refreshed time.Time // when it was taken; zero: never
	OK        uint64    // certificates and anchors taken
	Failed    uint64    // attempts that brought none
}

func (p *page) identity() {
	p.certExpiration = p.add("control_identity_cert_expiration_timestamp_seconds", "When the proxy's own certificate expires, in seconds since 1970.")
	p.certRefresh = p.add("control_identity_cert_refresh_timestamp_seconds", "When the proxy's own certificate or its anchors last changed, in seconds since 1970.")
	p.certRefreshes = p.add("control_identity_cert_refreshes_total", "Changes of the proxy's own certificate or its anchors, by result; error: what came was not taken.", "result")
	p.oldCertExpiration = p.add("identity_cert_expiration_timestamp_seconds", "The same as control_identity_cert_expiration_timestamp_seconds, by its older name.")
	p.oldCertRefreshes = p.add("identity_cert_refresh_count", "control_identity_cert_refreshes_total with result ok, by its older name.")
}

// collectIdentity sends no time of a certificate that is not there: 0 would
// look like one that expired long ago.
func (m *Metrics) collectIdentity(send sender) {
	if m.cfg.Identity == nil {
		return
	}
	i := m.cfg.Identity()
	if !i.NotAfter.IsZero() {
		send.gauge(m.page.certExpiration, i.NotAfter.Unix(), nil)
		send.gauge(m.page.oldCertExpiration, i.NotAfter.Unix(), nil)
		send.gauge(m.page.certRefresh, i.Refreshed.Unix(), nil)
	}
	send.counter(m.page.certRefreshes, i.OK, labels{}.with("result", "ok"))
	send.counter(m.page.certRefreshes, i.Failed, labels{}.with("result", "error"))
	send.counter(m.page.oldCertRefreshes, i.OK, nil)
}
