package forward

import (
	"github.com/meshctl/meshctl/proxy/exchange"
	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/metrics"
)

// clientID is the header by which the application learns who calls. It is always
// ours: what a client wrote there is taken away.
const clientID = "l5d-client-id"

// Admit implements exchange.Gate.
func (fl *flow) Admit(h *message.Head) exchange.Failure {
	if fl.lane.forwarder.direction == metrics.Outbound {
		return 0
	}
	h.Del(clientID)
	if fl.peer != nil && fl.peer.ID != "" {
		h.Add(clientID, fl.peer.ID)
	}
	return 0
}
