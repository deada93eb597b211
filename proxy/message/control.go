package message

// Fields that proxies and applications tell each other things with, named as
// Linkerd's. A proxy removes those that only another proxy may set.
const (
	// ClientID is set by the inbound proxy for the application: the identity of the
	// peer, verified. It is always overwritten or removed, so that an application can
	// trust it.
	ClientID = "l5d-client-id"
	// RequireID is set by the application for the outbound proxy, which removes it:
	// the identity that the endpoint must have, else the answer is 502.
	RequireID = "l5d-require-id"
	// DstCanonical is set by the outbound proxy: the name of the Service.
	DstCanonical = "l5d-dst-canonical"
	// ProxyError is set by a proxy that answers itself: why.
	ProxyError = "l5d-proxy-error"
	// ProxyConnection, with the value "close", tells the application's client not to
	// use its connection again.
	ProxyConnection = "l5d-proxy-connection"
)
