package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// family is one exported name. labels are all it can have; those that are empty
// on a series are left out of it, which means the same to Prometheus.
type family struct {
	name   string
	help   string
	labels []string
	desc   *prometheus.Desc
}

// page is every number the proxy exports, but for the process_* of the
// Prometheus library.
type page struct {
	all []*family

	// Connections. A proxied connection counts twice: peer="src" and "dst".
	tcpOpenTotal, tcpOpenConnections      *family
	tcpReadBytesTotal, tcpWriteBytesTotal *family
	tcpCloseTotal, tcpConnectionDuration  *family
	inboundErrors, outboundErrors         *family

	// Detection.
	inboundDetectResults, outboundDetectResults   *family
	inboundDetectDuration, outboundDetectDuration *family
	outboundProtocol, detectTotal, detectedNames  *family
	detecting, earlyDials, serverFirstTargets     *family

	// HTTP.
	ofTarget, ofRoute               httpFamilies
	observerLost, grpcStatusMissing *family
	retries, answers, bypasses      *family
	endpoints, pooled               *family
	waiting, exchanges, retryTokens *family
	accessLines                     *family

	// The proxy itself.
	transportHeaders                             *family
	refusedTotal, acceptErrors, panics, draining *family
	skipPackets, seriesFolded, buildInfo         *family
	goGoroutines, goHeapBytes, goTotalBytes      *family

	// Who may call.
	tcpAllowed, tcpDenied, tcpTerminated   *family
	httpAllowed, httpDenied, routeNotFound *family

	// Kubernetes objects, from the API and from files.
	kubernetesAge, kubernetesSynced, kubernetesObjects, kubernetesChanges *family
	resourceLoads, resourceProblems, resourceObjects                      *family

	// The certificate.
	certExpiration, certRefresh, certRefreshes *family
	oldCertExpiration, oldCertRefreshes        *family

	// The destination service.
	controlConnected, controlAge, controlStreams, controlWatched, controlPorts *family
	controlMessages, controlRequests, controlResponses                         *family

	latencyBounds bounds // Linkerd's, in milliseconds
	detectBounds  bounds // Linkerd's 0.001 and 0.1 and some between, in seconds
}

func newPage() *page {
	p := &page{}
	p.connections()
	p.detection()
	p.requests()
	p.intermediary()
	p.itself()
	p.resources()
	p.kubernetes()
	p.identity()
	p.controlPlane()
	p.authorization()
	p.latencyBounds = newBounds(time.Millisecond, 1, 2, 3, 4, 5, 10, 20, 30, 40, 50, 100, 200, 300, 400, 500,
		1000, 2000, 3000, 4000, 5000, 10000, 20000, 30000, 40000, 50000)
	p.detectBounds = newBounds(time.Second, .001, .005, .01, .05, .1, .25, .5, 1, 2.5, 5, 10)
	return p
}

func (p *page) add(name, help string, labels ...string) *family {
	f := &family{name: name, help: help, labels: labels, desc: prometheus.NewDesc(name, help, labels, nil)}
	p.all = append(p.all, f)
	return f
}

// targetLabels are the labels of a family that is kept by target.
func targetLabels(first ...string) []string {
	return append(first, "target_addr", "target_ip", "target_port", "tls", "no_tls_reason", "client_id", "server_id", "sni",
		"dst_service", "dst_namespace", "dst_port", "authority")
}

// httpFamilies are the numbers of requests, by one set of labels.
type httpFamilies struct{ requests, responses, latency *family }

func (p *page) connections() {
	tcp := targetLabels("direction", "peer")
	p.tcpOpenTotal = p.add("tcp_open_total", "Connections opened.", tcp...)
	p.tcpOpenConnections = p.add("tcp_open_connections", "Connections open now.", tcp...)
	p.tcpReadBytesTotal = p.add("tcp_read_bytes_total", "Bytes read from the peer.", tcp...)
	p.tcpWriteBytesTotal = p.add("tcp_write_bytes_total", "Bytes written to the peer.", tcp...)
	p.tcpCloseTotal = p.add("tcp_close_total", "Connections closed, by the error that ended them.", targetLabels("direction", "peer", "errno")...)
	p.tcpConnectionDuration = p.add("tcp_connection_duration_ms", "How long closed connections were open, in milliseconds.", "direction", "peer")
	p.inboundErrors = p.add("inbound_tcp_errors_total", "Inbound connections that failed in the proxy.", "error")
	p.outboundErrors = p.add("outbound_tcp_errors_total", "Outbound connections that failed in the proxy.", "error")
}

func (p *page) detection() {
	p.inboundDetectResults = p.add("inbound_tcp_detect_http_results_total", "Inbound detections ended, by result.", "result")
	p.outboundDetectResults = p.add("outbound_tcp_detect_http_results_total", "Outbound detections ended, by result.", "result")
	p.inboundDetectDuration = p.add("inbound_tcp_detect_http_duration_seconds", "How long inbound detections took, from accept.")
	p.outboundDetectDuration = p.add("outbound_tcp_detect_http_duration_seconds", "How long outbound detections took, from accept.")
	p.outboundProtocol = p.add("outbound_tcp_protocol_connections_total", "Outbound connections, by what was known of their protocol before a byte was read.", "protocol")
	p.detectTotal = p.add("meshctl_detect_total", "Detections ended, by what the connection is served as, why, and the original destination's port.", "direction", "protocol", "reason", "port")
	p.detectedNames = p.add("meshctl_detected_protocol_connections_total", "Connections whose payload was recognised, by its name. Never used for routing.", "direction", "detected")
	p.detecting = p.add("meshctl_detecting_connections", "Connections whose protocol is being detected now.")
	p.earlyDials = p.add("meshctl_early_dials_total", "Connections dialed while the client was silent, by what came of it.", "direction", "outcome")
	p.serverFirstTargets = p.add("meshctl_server_first_targets", "Targets remembered as speaking first: dialed at once.")
}

func (p *page) requests() {
	const latency = "From the request to the first byte of the response's body, or its end if it has none, in milliseconds"
	p.ofTarget = httpFamilies{
		p.add("request_total", "HTTP requests.", targetLabels("direction")...),
		p.add("response_total", "HTTP exchanges ended.", targetLabels("direction", "status_code", "classification", "grpc_status", "error")...),
		p.add("response_latency_ms", latency+".", targetLabels("direction", "status_code")...),
	}
	routed := append(serviceLabels(), append(routeLabels(), "direction")...)
	p.ofRoute = httpFamilies{
		p.add("route_request_total", "HTTP requests that came under a route, once they have ended.", routed...),
		p.add("route_response_total", "HTTP exchanges ended, by route.", append([]string{"status_code", "classification", "grpc_status", "error"}, routed...)...),
		p.add("route_response_latency_ms", latency+", by route.", append([]string{"status_code"}, routed...)...),
	}
	p.observerLost = p.add("meshctl_observer_lost_total", "Connections whose requests are no longer counted because the observer could not follow them. Traffic goes on.", "protocol", "reason")
	p.grpcStatusMissing = p.add("meshctl_grpc_status_missing_total", "gRPC responses without a grpc-status; failures in response_total.")
}

func (p *page) itself() {
	p.refusedTotal = p.add("meshctl_refused_total", "Connections closed without being served.", "direction", "reason")
	p.transportHeaders = p.add("inbound_tcp_transport_header_connections_total", "Connections of other proxies that said where they go.",
		"session_protocol", "target_port", "target_name", "client_id")
	p.acceptErrors = p.add("meshctl_accept_errors_total", "Failed accepts.", "error")
	p.panics = p.add("meshctl_panics_total", "Panics, each contained in its connection.")
	p.draining = p.add("meshctl_draining", "1 while the proxy drains.")
	p.skipPackets = p.add("meshctl_skip_packets_total", "Connections that a skip rule kept away from the proxy, from the kernel's rule counters.", "direction", "rule")
	p.seriesFolded = p.add("meshctl_series_folded_total", "Times something was counted under \"other\" because a family was full.", "family")
	p.buildInfo = p.add("proxy_build_info", "Always 1; the labels say what runs.", "version", "git_sha", "go_version", "arch")
	p.goGoroutines = p.add("go_goroutines", "Goroutines.")
	p.goHeapBytes = p.add("go_memstats_heap_alloc_bytes", "Bytes of heap objects, live or not yet swept.")
	p.goTotalBytes = p.add("go_memstats_sys_bytes", "Bytes of memory that the Go runtime has mapped.")
}
