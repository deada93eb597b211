package admin

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/netip"
	"time"
)

// Connection is one open connection as /connections shows it. Empty words are
// left out.
type Connection struct {
	Direction string         // inbound or outbound
	Client    netip.AddrPort // who opened it
	Target    netip.AddrPort // original destination
	Service   string         // what the destination is: "Service shop/db port 3306 (mysql)"
	Endpoint  netip.AddrPort // where an opaque connection went, if that is not Target
	Declared  string         // what was known of the protocol beforehand, and who said it
	Protocol  string         // what it is served as: opaque, tls, http/1, http/2, unknown
	Detected  string         // name of the payload for people: mysql, redis ...
	Reason    string         // why it is served so
	SNI       string         // server name of a ClientHello
	ALPN      string         // protocols a ClientHello offers, comma-joined
	TLS       string         // true: mTLS with the client (inbound) or the endpoint (outbound)
	ClientID  string         // inbound: the verified identity of the client
	ServerID  string         // outbound: that of the endpoint
	State     string         // detecting, dialing, relaying, draining ...
	BytesIn   uint64         // read from the client
	BytesOut  uint64         // written to the client
	Age       time.Duration  // since accept
}

// shown is the JSON form of a Connection.
type shown struct {
	Direction string         `json:"direction"`
	Client    netip.AddrPort `json:"client"`
	Target    netip.AddrPort `json:"target"`
	Service   string         `json:"service,omitempty"`
	Endpoint  netip.AddrPort `json:"endpoint,omitzero"`
	Declared  string         `json:"declared,omitempty"`
	Protocol  string         `json:"protocol"`
	Detected  string         `json:"detected,omitempty"`
	Reason    string         `json:"reason,omitempty"`
	SNI       string         `json:"sni,omitempty"`
	ALPN      string         `json:"alpn,omitempty"`
	TLS       string         `json:"tls,omitempty"`
	ClientID  string         `json:"client_id,omitempty"`
	ServerID  string         `json:"server_id,omitempty"`
	State     string         `json:"state,omitempty"`
	BytesIn   uint64         `json:"bytes_in"`
	BytesOut  uint64         `json:"bytes_out"`
	AgeMS     int64          `json:"age_ms"`
}

// MarshalJSON writes c with the keys of /connections; addresses are unwrapped
// from their v4-mapped form and the age is in milliseconds.
func (c Connection) MarshalJSON() ([]byte, error) {
	return json.Marshal(shown{
		Direction: c.Direction, Client: unmap(c.Client), Target: unmap(c.Target),
		Service: c.Service, Endpoint: unmap(c.Endpoint), Declared: c.Declared,
		Protocol: c.Protocol, Detected: c.Detected, Reason: c.Reason, SNI: c.SNI, ALPN: c.ALPN, TLS: c.TLS, ClientID: c.ClientID, ServerID: c.ServerID, State: c.State,
		BytesIn: c.BytesIn, BytesOut: c.BytesOut, AgeMS: c.Age.Milliseconds(),
	})
}

func unmap(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// connections streams a JSON array, one connection a line: with thousands open
// the answer is never in memory as a whole.
func (a *Admin) connections(w http.ResponseWriter, r *http.Request) {
	writeJSONHeader(w)
	if r.Method == http.MethodHead {
		return
	}
	out := bufio.NewWriterSize(w, 16<<10)
	// Errors stick to out: the next write, and at last Flush, would tell. The
	// status is on its way by then, so all that is left is to stop.
	_ = out.WriteByte('[')
	a.list(out)
	_, _ = out.WriteString("]\n")
	_ = out.Flush()
}

func (a *Admin) list(out *bufio.Writer) {
	if a.cfg.Connections == nil {
		return
	}
	separator := "\n"
	for c := range a.cfg.Connections {
		line, err := c.MarshalJSON()
		if err != nil {
			return
		}
		_, _ = out.WriteString(separator)
		if _, err := out.Write(line); err != nil {
			return
		}
		separator = ",\n"
	}
	if separator != "\n" {
		_ = out.WriteByte('\n')
	}
}
