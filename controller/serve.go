package controller

import (
	"context"
	"net"
	"net/netip"
	"strconv"

	"github.com/linkerd/linkerd2-proxy-api/go/destination"
	"github.com/linkerd/linkerd2-proxy-api/go/outbound"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/destination/wire"
)

// maxAdded is how many endpoints go into one message: it stays below the 4 MiB
// that gRPC takes by default.
const maxAdded = 10_000

var errEnding = status.Error(codes.Unavailable, "this replica ends: ask another")

// follow calls send with every answer that is another than the last, until the
// stream or the Server ends. Answers that come while send is busy are one.
func (s *Server) follow(ctx context.Context, what kind, k key, send func(*answer) error) error {
	s.streams[what].Add(1)
	defer s.streams[what].Add(-1)
	t := s.hub.watch(k)
	defer s.hub.release(t)
	var last *answer
	for {
		now, next := t.current()
		if now != last {
			if err := send(now); err != nil {
				return err
			}
			last = now
		}
		select {
		case <-next:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.done:
			return errEnding
		}
	}
}

// destinationAPI is io.linkerd.proxy.destination.Destination.
type destinationAPI struct {
	destination.UnimplementedDestinationServer
	s *Server
}

// Get sends the endpoints of a Service's port, and how they change.
func (a destinationAPI) Get(in *destination.GetDestination, out destination.Destination_GetServer) error {
	if err := a.s.await(out.Context()); err != nil {
		return err
	}
	k, err := a.s.service(in.GetPath())
	if err != nil {
		return err
	}
	labels := map[string]string{"namespace": k.namespace, "service": k.name}
	var sent *wire.Endpoints
	return a.s.follow(out.Context(), askMembers, k, func(now *answer) error {
		for _, u := range now.members.Updates(sent, labels) {
			for _, part := range split(u) {
				if err := out.Send(part); err != nil {
					return err
				}
				a.s.sent.Add(1)
			}
		}
		sent = &now.members
		return nil
	})
}

// split cuts an addition that is too large for one message.
func split(u *destination.Update) []*destination.Update {
	add := u.GetAdd()
	if len(add.GetAddrs()) <= maxAdded {
		return []*destination.Update{u}
	}
	var out []*destination.Update
	for addrs := add.GetAddrs(); len(addrs) > 0; {
		n := min(maxAdded, len(addrs))
		out = append(out, &destination.Update{Update: &destination.Update_Add{Add: &destination.WeightedAddrSet{Addrs: addrs[:n], MetricLabels: add.GetMetricLabels()}}})
		addrs = addrs[n:]
	}
	return out
}

// GetProfile sends what a destination is.
func (a destinationAPI) GetProfile(in *destination.GetDestination, out destination.Destination_GetProfileServer) error {
	if err := a.s.await(out.Context()); err != nil {
		return err
	}
	dst, err := a.s.address(in.GetPath())
	if err != nil {
		return err
	}
	var last *answer
	return a.s.follow(out.Context(), askProfile, key{dst: dst, from: parseWorkload(in.GetContextToken()).Namespace}, func(now *answer) error {
		if last != nil && same(last.profile, now.profile) {
			return nil
		}
		last = now
		a.s.sent.Add(1)
		return out.Send(now.profile)
	})
}

// outboundAPI is io.linkerd.proxy.outbound.OutboundPolicies.
type outboundAPI struct {
	outbound.UnimplementedOutboundPoliciesServer
	s *Server
}

func (a outboundAPI) key(in *outbound.TrafficSpec) (k key, err error) {
	k.from = parseWorkload(in.GetSourceWorkload()).Namespace
	if in.GetAuthority() != "" {
		k.dst, err = a.s.address(in.GetAuthority())
		return k, err
	}
	k.dst = wire.AddrPort(in.GetAddr())
	if !k.dst.IsValid() {
		return k, status.Error(codes.InvalidArgument, "the target is no address with a port")
	}
	return k, nil
}

// Get answers once.
func (a outboundAPI) Get(ctx context.Context, in *outbound.TrafficSpec) (*outbound.OutboundPolicy, error) {
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
	return now.policy, nil
}

// Watch sends what becomes of what goes to a destination.
func (a outboundAPI) Watch(in *outbound.TrafficSpec, out outbound.OutboundPolicies_WatchServer) error {
	if err := a.s.await(out.Context()); err != nil {
		return err
	}
	k, err := a.key(in)
	if err != nil {
		return err
	}
	var last *answer
	return a.s.follow(out.Context(), askPolicy, k, func(now *answer) error {
		if last != nil && same(last.policy, now.policy) {
			return nil
		}
		last = now
		a.s.sent.Add(1)
		return out.Send(now.policy)
	})
}

// service reads what Get is asked for: a Service's name or cluster address, and a
// port.
func (s *Server) service(path string) (k key, err error) {
	host, port, err := hostPort(path)
	if err != nil {
		return k, err
	}
	if a, e := netip.ParseAddr(host); e == nil {
		a = a.Unmap()
		s.cfg.Picture.Read(func(p *cluster.Snapshot) {
			v := p.Find(netip.AddrPortFrom(a, port))
			if v.Object.Kind == "Service" {
				k = key{namespace: v.Object.Namespace, name: v.Object.Name, port: port, v6: a.Is6()}
			}
		})
		if k.name == "" {
			return k, status.Errorf(codes.InvalidArgument, "%q is no address of a Service", path)
		}
		return k, nil
	}
	namespace, name, ok := s.cfg.Wire.ParseServiceName(host)
	if !ok {
		return k, status.Errorf(codes.InvalidArgument, "%q is no name of a Service such as %s:80", path, s.cfg.Wire.ServiceName("shop", "web"))
	}
	return key{namespace: namespace, name: name, port: port}, nil
}

// address reads what GetProfile is asked for: an address, or the name of a Service
// that has one.
func (s *Server) address(path string) (netip.AddrPort, error) {
	host, port, err := hostPort(path)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if a, e := netip.ParseAddr(host); e == nil {
		return netip.AddrPortFrom(a.Unmap(), port), nil
	}
	namespace, name, ok := s.cfg.Wire.ParseServiceName(host)
	if !ok {
		return netip.AddrPort{}, status.Errorf(codes.InvalidArgument, "%q is neither an address nor the name of a Service", path)
	}
	var ips []netip.Addr
	s.cfg.Picture.Read(func(p *cluster.Snapshot) { ips = p.ServiceIPs(namespace, name) })
	if len(ips) == 0 {
		return netip.AddrPort{}, status.Errorf(codes.NotFound, "no Service %s/%s with an address is known", namespace, name)
	}
	return netip.AddrPortFrom(ips[0], port), nil
}

func hostPort(path string) (string, uint16, error) {
	host, text, err := net.SplitHostPort(path)
	if err != nil {
		return "", 0, status.Errorf(codes.InvalidArgument, "%q is no host and port", path)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return "", 0, status.Errorf(codes.InvalidArgument, "%q has no port from 1 to 65535", path)
	}
	return host, uint16(port), nil
}
