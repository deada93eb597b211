package main

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/file"
	"github.com/meshctl/meshctl/proxy/message"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/rules"
)

// accessFlags say who calls, and with what.
type accessFlags struct {
	policyFlags
	clientID string
	request  string // "GET /path"
}

func (a *accessFlags) register(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.clientID, "client-id", "", "identity of the client's certificate, inbound; empty: it has none")
	f.StringVar(&a.request, "request", "", `a request to decide about, as in "GET /orders/1", inbound`)
	a.policyFlags.register(f)
}

// accessAnswer is whether a client may call, and by what.
type accessAnswer struct {
	Allowed  bool   `json:"allowed"`
	Audit    bool   `json:"audit,omitempty"`
	By       string `json:"by,omitempty"`
	At       string `json:"at,omitempty"` // file:line
	Reason   string `json:"reason,omitempty"`
	Route    string `json:"route,omitempty"`
	Server   string `json:"server"`
	ServerAt string `json:"server_at,omitempty"`
	Requests bool   `json:"by_request,omitempty"` // routes decide, and no request was said
	Strict   bool   `json:"strict,omitempty"`     // what is not HTTP is closed
	Protocol string `json:"protocol,omitempty"`   // what the Server declares
}

// explainAccess adds who may call; nothing where nobody was asked about.
func (e *explainFlags) explainAccess(cmd *cobra.Command, a *explanation, packet rules.Packet) error {
	said := false
	for _, name := range []string{"client-id", "request", "default-inbound-policy", "labels", "pod", "port-names", "policy-cluster-networks", "detect-timeout-action"} {
		said = said || cmd.Flags().Changed(name)
	}
	switch {
	case packet.Direction != rules.Inbound && said:
		return usagef("--client-id, --request and the flags of policies are for --inbound")
	case packet.Direction != rules.Inbound, a.Proxy == nil || !a.Proxy.speaks(), !said && len(e.targets.resources) == 0 && !e.targets.api.asked():
		return nil
	}
	tab, objects, err := e.policyTable(packet.Dst.Addr())
	if err != nil {
		return err
	}
	client := policy.Client{Addr: packet.Src.Addr(), Mesh: e.access.clientID != "", ID: e.access.clientID}
	if !client.Addr.IsValid() {
		a.Assumed = append(a.Assumed, "nothing that asks for a network lets the client in (--from)")
	}
	if !client.Mesh {
		a.Assumed = append(a.Assumed, "the client has no mesh identity (--client-id)")
	}
	port := tab.Port(packet.Dst.Port())
	a.Proxy = declares(port, a.Proxy)
	answer := &accessAnswer{Server: refText(port.Server), ServerAt: port.Object.Place(), Strict: port.StrictDetect}
	if port.Covered() && port.Protocol != protocol.Unknown {
		answer.Protocol = port.Protocol.String()
	}
	decision := port.AuthorizeConnection(client)
	switch {
	case e.access.request != "":
		head, err := parseRequest(e.access.request)
		if err != nil {
			return err
		}
		r := port.AuthorizeRequest(client, head)
		decision, answer.Route = r.Decision, refText(r.Route)
	case port.HTTP():
		answer.Requests = true
	}
	answer.Allowed, answer.Audit, answer.Reason = decision.Allowed, decision.Audit, decision.Reason
	answer.By, answer.At = refText(decision.Authz), objects.Find(decision.Authz).Place()
	a.Access = answer
	return nil
}

// declares is what the proxy does with a connection to a port of which a Server, or
// a policy that lets nobody in, says what it speaks.
func declares(port *policy.Port, p *proxyAnswer) *proxyAnswer {
	declared := protocol.Unknown
	if p.Action == "opaque" {
		declared = protocol.Opaque
	}
	kind := port.Kind(declared)
	switch {
	case kind == declared:
		return p
	case kind == protocol.Unknown:
		return &proxyAnswer{Action: "detect", Does: "tells the protocol from the client's first bytes, as the Server has it"}
	case kind == protocol.Opaque:
		return &proxyAnswer{Action: "opaque", Does: "takes it for TCP at once"}
	}
	return &proxyAnswer{Action: kind.String(), Does: "takes it for " + strings.ToUpper(kind.String()) + " at once, as the Server declares"}
}

// policyTable is the policy of the pod with an address.
func (e *explainFlags) policyTable(addr netip.Addr) (*policy.Table, policy.Objects, error) {
	cfg, err := e.access.config()
	if err != nil {
		return nil, policy.Objects{}, err
	}
	objects, err := e.policyObjects()
	if err != nil {
		return nil, objects, err
	}
	own := policy.Pod{Object: policy.Object{Namespace: e.targets.namespace, Name: cfg.Pod}}
	found := objects.Own(e.targets.namespace, cfg.Pod, func(a netip.Addr) bool { return a == addr })
	if found != nil {
		own = *found
	}
	switch {
	case cfg.Labels != "":
		if own.Labels, err = file.Labels(cfg.Labels); err != nil {
			return nil, objects, inputError{err}
		}
	case found == nil && objects.HasServers(own.Namespace):
		return nil, objects, &usageError{err: fmt.Errorf("there are Servers, and no Pod among the resources has the address %s", addr), hint: "--pod or --labels says which pod it is"}
	}
	own.Ports = append(own.Ports, cfg.PortNames...)
	annotated, err := e.annotatedPolicy()
	if err != nil {
		return nil, objects, err
	}
	for _, d := range []policy.Default{annotated, own.Default, objects.DefaultOf(own.Namespace)} {
		if cfg.Default == 0 {
			cfg.Default = d
		}
	}
	return policy.Compile(policy.Config{
		Pod: own, Default: cfg.Default, ClusterNetworks: cfg.ClusterNetworks, TrustDomain: e.targets.trustDomain, Actions: cfg.Actions,
	}, objects), objects, nil
}

// policyObjects are those of the resources, or of the API; none without both.
func (e *explainFlags) policyObjects() (objects policy.Objects, err error) {
	in := cluster.Config{Namespace: e.targets.namespace}
	api, err := e.targets.api.config(e.targets.resources)
	switch {
	case err != nil:
		return objects, err
	case api != nil:
		_, err = picture(*api, in, func(s *cluster.Snapshot) { objects = s.Policies() })
		return objects, err
	case len(e.targets.resources) == 0:
		return objects, nil
	}
	snapshot, report := file.NewReader(file.Config{Paths: e.targets.resources, Cluster: in}).Load()
	if err := report.Err(); err != nil {
		return objects, inputError{fmt.Errorf("reading resources: %w", err)}
	}
	return snapshot.Policies(), nil
}

// annotatedPolicy is what --annotations says.
func (e *explainFlags) annotatedPolicy() (policy.Default, error) {
	if e.rules.annotations == "" {
		return 0, nil
	}
	pod, _, err := file.Annotations(e.rules.annotations)
	if err != nil || pod.DefaultInboundPolicy == nil {
		return 0, err
	}
	return policy.ParseDefault(*pod.DefaultInboundPolicy)
}

// parseRequest reads "GET /path".
func parseRequest(text string) (*message.Head, error) {
	method, path, ok := strings.Cut(text, " ")
	if !ok || method == "" || !strings.HasPrefix(path, "/") && path != "*" || strings.ContainsAny(path, " \t\r\n") {
		return nil, &usageError{err: fmt.Errorf("--request %q is no method and path", text), hint: `as "GET /orders/1"`}
	}
	return &message.Head{Version: message.HTTP11, Method: []byte(method), Path: []byte(path)}, nil
}

// refText names an object as Kubernetes does.
func refText(r policy.Ref) string {
	kinds := map[string]string{"server": "Server", "authorizationpolicy": "AuthorizationPolicy", "serverauthorization": "ServerAuthorization", "httproute": "HTTPRoute", "grpcroute": "GRPCRoute"}
	switch {
	case r == policy.Ref{}:
		return ""
	case r.Kind == "default":
		return "the default " + r.Name
	}
	return kinds[r.Kind] + " " + r.Namespace + "/" + r.Name
}

// reasons are those of a denial in words.
func (a *accessAnswer) because() string {
	switch a.Reason {
	case policy.NoAuthorization:
		return "nothing lets anybody in"
	case policy.NoIdentity:
		return "the client has proved no identity"
	case policy.NotAuthorized:
		return "no authorization is for this client"
	case policy.AmbiguousPath:
		return "the server may read the path as another one, and so the route's authorizations do not count"
	case policy.NoRouteMatches:
		return "the request comes under no route: 404"
	}
	return a.Reason
}

// lines are those of the answer, for people.
func (a *accessAnswer) lines() []string {
	server := a.Server
	if a.ServerAt != "" {
		server += ", " + a.ServerAt
	}
	if a.Protocol != "" {
		server += "; it declares " + a.Protocol
	}
	if a.Strict {
		server += "; what is not HTTP is closed"
	}
	out := []string{"  server   " + server}
	if a.Route != "" && a.Route != "the default default" {
		out = append(out, "  route    "+a.Route)
	}
	what := "denied: " + a.because()
	if a.Allowed {
		what = "allowed by " + a.By
		if a.At != "" {
			what += ", " + a.At
		}
		if a.Audit {
			what += ", and logged"
		}
	}
	if a.Requests {
		what = "by request (--request); as TCP " + what
	}
	return append(out, "  access   "+what)
}
