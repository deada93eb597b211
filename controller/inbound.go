package controller

import (
	"context"
	"net/netip"

	"github.com/linkerd/linkerd2-proxy-api/go/inbound"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/destination/wire"
)

// inboundAPI is io.linkerd.proxy.inbound.InboundServerPolicies.
type inboundAPI struct {
	inbound.UnimplementedInboundServerPoliciesServer
	s *Server
}

func (a inboundAPI) key(in *inbound.PortSpec) (key, error) {
	w := parseWorkload(in.GetWorkload())
	if w.Namespace == "" || w.Pod == "" {
		return key{}, status.Errorf(codes.InvalidArgument, `the workload %q is not {"ns":"...","pod":"..."}`, in.GetWorkload())
	}
	if in.GetPort() == 0 || in.GetPort() > 65535 {
		return key{}, status.Errorf(codes.InvalidArgument, "%d is no port from 1 to 65535", in.GetPort())
	}
	return key{inbound: true, namespace: w.Namespace, name: w.Pod, port: uint16(in.GetPort())}, nil
}

// GetPort answers once.
func (a inboundAPI) GetPort(ctx context.Context, in *inbound.PortSpec) (*inbound.Server, error) {
	if err := a.s.await(ctx); err != nil {
		return nil, err
	}
	k, err := a.key(in)
	if err != nil {
		return nil, err
	}
	t := a.s.hub.watch(k)
	defer a.s.hub.release(t)
	now, _ := t.current()
	if now.inbound == nil {
		return nil, status.Errorf(codes.NotFound, "no pod %s/%s is known", k.namespace, k.name)
	}
	return now.inbound, nil
}

// WatchPort sends who may call a port, and how that changes. While the pod is not
// known it sends nothing.
func (a inboundAPI) WatchPort(in *inbound.PortSpec, out inbound.InboundServerPolicies_WatchPortServer) error {
	if err := a.s.await(out.Context()); err != nil {
		return err
	}
	k, err := a.key(in)
	if err != nil {
		return err
	}
	return a.s.follow(out.Context(), askInbound, k, func(now *answer) error {
		if now.inbound == nil {
			return nil
		}
		a.s.sent.Add(1)
		return out.Send(now.inbound)
	})
}

// mayCall computes who may call a pod's port.
func (t *topic) mayCall(s *cluster.Snapshot) *answer {
	pod := s.PolicyPod(t.namespace, t.name)
	if pod == nil {
		return &answer{}
	}
	server := t.hub.server
	p := server.tables.table(s, server.cfg.Policy, pod).Port(t.port)
	out := wire.Inbound(p, pod.IPs)
	if !p.Covered() && len(pod.IPs) > 0 {
		v := s.In(t.namespace).Find(netip.AddrPortFrom(pod.IPs[0], t.port))
		wire.Declare(out, &v)
	}
	return &answer{inbound: out}
}
