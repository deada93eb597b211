// Package identity has the certificate by which this proxy is known to others, and
// the trust anchors by which it knows them: from files as cert-manager mounts
// them, or from the SPIFFE Workload API. It follows both as they change.
//
// What is in force is a Snapshot, which never changes; a Source has the present
// one. Without a valid certificate a Source has an error instead, and whoever
// asks has to refuse: nothing here ever means "without TLS". The package does no
// TLS itself, and it makes no certificates: that is package authority's.
package identity

import (
	"errors"
	"time"
)

// Source has the certificate and the anchors that are in force now.
type Source interface {
	// Current returns what is in force: an atomic load and a look at the clock. Its
	// error is ErrWaiting as long as there is no certificate, or ErrExpired, with
	// the reason; then the caller refuses.
	Current() (*Snapshot, error)
	// Changed has f called after each change, on the goroutine that noticed it, so
	// that it must not take long. What changed before is not told.
	Changed(f func())
	// Stats are numbers for metrics.
	Stats() Stats
	// Close ends following the files or the API and waits for it. What was
	// in force stays so.
	Close() error
}

// What Current may say, with the reason behind it.
var (
	ErrWaiting = errors.New("there is no certificate yet")
	ErrExpired = errors.New("the proxy's own certificate has expired")
)

// Stats says how a Source fares.
type Stats struct {
	NotAfter  time.Time // of the certificate in force; zero: none yet
	Refreshed time.Time // when it was taken; zero: never
	OK        uint64    // changes of certificate or anchors that were taken
	Failed    uint64    // what was not taken: bad files, failed calls
}

// Name is the DNS name by which Linkerd knows a service account, for example
// web.default.serviceaccount.identity.linkerd.cluster.local.
func Name(serviceAccount, namespace, controlPlaneNamespace, trustDomain string) string {
	return serviceAccount + "." + namespace + ".serviceaccount.identity." + controlPlaneNamespace + "." + trustDomain
}
