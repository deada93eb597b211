package discovery

// Mesh says whether an endpoint has a proxy in front of it to which connections
// go by mTLS, and how. The zero value: it has none, for no special reason.
type Mesh struct {
	// ID is what the proxy's certificate has to say: a DNS name, or a SPIFFE ID as
	// a URI. Empty: the endpoint is not meshed.
	ID string
	// ServerName is what to ask for in the handshake (SNI); for a DNS name the ID.
	ServerName string
	// Port is where the proxy takes connections that begin with a transport header.
	Port uint16
	// NoTLS is why an endpoint is not meshed, one of the words below; empty if it is.
	NoTLS string
}

// Why connections go out without mTLS. They are Linkerd's words, and label values.
const (
	NotProvided = "not_provided_by_service_discovery" // no proxy is known to be there
	Loopback    = "loopback"                          // the endpoint is this very pod
	PortSkipped = "port_skipped"                      // its rules keep the port away from its proxy
)

// Meshed reports whether connections go by mTLS.
func (m Mesh) Meshed() bool { return m.ID != "" }

// Reason is why connections go without mTLS; empty if they go with it.
func (m Mesh) Reason() string {
	if m.NoTLS == "" && !m.Meshed() {
		return NotProvided
	}
	return m.NoTLS
}
