package wire

import (
	dst "github.com/linkerd/linkerd2-proxy-api/go/destination"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/protocol"
)

// Profile is what GetProfile answers about v.
func (c Config) Profile(v *discovery.View) *dst.DestinationProfile {
	out := &dst.DestinationProfile{OpaqueProtocol: v.Protocol.Kind == protocol.Opaque || v.Refused == discovery.NoSuchPort}
	switch v.Kind {
	case discovery.ServicePort:
		out.FullyQualifiedName = c.ServiceName(v.Object.Namespace, v.Object.Name)
		out.ParentRef = resource(v.Object, v.Port)
	case discovery.HeadlessPod:
		out.ParentRef = resource(v.Object, v.Port)
		out.Endpoint = single(v)
	case discovery.Pod, discovery.Workload:
		out.Endpoint = single(v)
	}
	return out
}

func single(v *discovery.View) *dst.WeightedAddr {
	if len(v.Endpoints) == 0 {
		return nil
	}
	return Endpoint(v.Endpoints[0])
}
