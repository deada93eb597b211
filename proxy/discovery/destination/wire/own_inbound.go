package wire

import (
	"encoding/json"

	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// portOwn is a policy.Description as a proxy of ours hears it: the API has no names
// of SPIFFE IDs of a namespace, no strict detection and fewer filters.
type portOwn struct {
	policy.Description
	Protocol string // in words, so that versions may differ
}

func ownOfPort(d policy.Description) []byte {
	raw, err := json.Marshal(portOwn{d, d.Protocol.String()})
	if err != nil {
		return nil // there is nothing in it that JSON does not have
	}
	return raw
}

// parseOwnPort reads our own field; false if it is not there, or not to be read:
// then what the API says has to do.
func parseOwnPort(raw []byte) (policy.Description, bool) {
	var o portOwn
	if len(raw) == 0 || json.Unmarshal(raw, &o) != nil || o.Server == (policy.Ref{}) {
		return policy.Description{}, false
	}
	for k := protocol.Unknown; k <= protocol.HTTP2; k++ {
		if k.String() == o.Protocol {
			o.Description.Protocol = k
			return o.Description, true
		}
	}
	return policy.Description{}, false
}
