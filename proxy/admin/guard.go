package admin

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

// public are the paths for everybody who can reach the port.
func public(path string) bool {
	return path == "/metrics" || path == "/live" || path == "/ready"
}

// guard lets the public paths through, and everything else only from loopback
// peers that name the server by address or as localhost. Without the look at
// Host, a web page in a browser on this machine could point its own name at
// 127.0.0.1 and read the answers (DNS rebinding).
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case public(r.URL.Path):
		case !fromLoopback(r.RemoteAddr):
			http.Error(w, "only from loopback", http.StatusForbidden)
			return
		case !literalHost(r.Host):
			http.Error(w, "only by address or as localhost", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// fromLoopback says whether remote, as net/http writes it, is a loopback
// address. A listener on [::] shows IPv4 peers as v4-mapped addresses.
func fromLoopback(remote string) bool {
	a, err := netip.ParseAddrPort(remote)
	return err == nil && a.Addr().Unmap().IsLoopback()
}

// literalHost says whether a Host header (RFC 9110, 7.2) is an IP address or
// localhost, with or without a port.
func literalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	if len(host) > 1 && host[0] == '[' && host[len(host)-1] == ']' {
		host = host[1 : len(host)-1]
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}

// timed gives every answer the time that writeTimeout allows. It is not the
// server's WriteTimeout because profiles must be exempt from that.
func timed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		deadline := time.Now().Add(writeTimeout)
		if strings.HasPrefix(r.URL.Path, profiles) {
			deadline = time.Time{}
		}
		// Only a ResponseWriter without deadlines refuses: a test's recorder.
		_ = http.NewResponseController(w).SetWriteDeadline(deadline)
		next.ServeHTTP(w, r)
	})
}
