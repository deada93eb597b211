package file

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gateway "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/policy"
	"github.com/meshctl/meshctl/proxy/protocol"
	"github.com/meshctl/meshctl/proxy/route"
)

// DetectAction is the annotation of a Server that says what becomes of connections
// to it that do not turn out to be HTTP: open or close.
const DetectAction = "config.meshctl.io/detect-timeout-action"

// proxyProtocols are the words of spec.proxyProtocol.
func proxyProtocol(word string) (kind protocol.Kind, grpc, ok bool) {
	switch word {
	case "", "unknown":
		return protocol.Unknown, false, true
	case "HTTP/1":
		return protocol.HTTP1, false, true
	case "HTTP/2":
		return protocol.HTTP2, false, true
	case "gRPC":
		return protocol.HTTP2, true, true
	case "opaque":
		return protocol.Opaque, false, true
	case "TLS":
		return protocol.TLS, false, true
	}
	return protocol.Unknown, false, false
}

func (r *reader) server(raw []byte) {
	var k server
	if !r.into(raw, &k) {
		return
	}
	out := &policy.Server{Object: r.ours(), Created: k.CreationTimestamp.Time, Labels: k.Labels}
	out.Pods = r.selector("spec.podSelector", k.Spec.PodSelector)
	out.External = r.selector("spec.externalWorkloadSelector", k.Spec.ExternalWorkloadSelector)
	ok := true
	if out.Pods == nil && out.External == nil {
		r.wrong("spec", "neither podSelector nor externalWorkloadSelector")
		return
	}
	if k.Spec.Port.Type == intstr.String {
		if out.PortName = k.Spec.Port.StrVal; out.PortName == "" {
			r.wrong("spec.port", "neither a port nor the name of one")
			return
		}
	} else if out.Port, ok = r.number("spec.port", k.Spec.Port.IntVal); !ok {
		return
	}
	if out.Protocol, out.GRPC, ok = proxyProtocol(k.Spec.ProxyProtocol); !ok {
		r.wrong("spec.proxyProtocol", "%q: want unknown, HTTP/1, HTTP/2, gRPC, opaque or TLS", k.Spec.ProxyProtocol)
		return
	}
	var err error
	if k.Spec.AccessPolicy != "" {
		if out.Access, err = policy.ParseDefault(k.Spec.AccessPolicy); err != nil {
			r.wrong("spec.accessPolicy", "%v", err)
			return
		}
	}
	if action, said := k.Annotations[DetectAction]; said {
		if out.Detect, err = policy.ParseAction(action); err != nil {
			r.wrong(annotationField(DetectAction), "%v", err)
			return
		}
	}
	r.objects.Policies.Servers = append(r.objects.Policies.Servers, out)
}

// selector copies a label selector; nil is none.
func (r *reader) selector(field string, s *metav1.LabelSelector) *policy.Selector {
	if s == nil {
		return nil
	}
	out := &policy.Selector{Labels: s.MatchLabels}
	for i, e := range s.MatchExpressions {
		at := fmt.Sprintf("%s.matchExpressions[%d]", field, i)
		switch e.Operator {
		case metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn:
			if len(e.Values) == 0 {
				r.wrong(at+".values", "%s needs values", e.Operator)
			}
		case metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist:
			if len(e.Values) > 0 {
				r.wrong(at+".values", "%s has no values", e.Operator)
			}
		default:
			r.wrong(at+".operator", "%q: want In, NotIn, Exists or DoesNotExist", e.Operator)
		}
		out.Expressions = append(out.Expressions, policy.Expression{Key: e.Key, Operator: string(e.Operator), Values: e.Values})
	}
	return out
}

// serversOf are the Servers among the parents of a route, which are in its own
// namespace.
func (r *reader) serversOf(parents []gateway.ParentReference) []string {
	var out []string
	for i, p := range parents {
		if text(p.Kind) != "Server" || text(p.Group) != policy.Group {
			continue
		}
		if space := text(p.Namespace); space != "" && space != r.object.Namespace {
			field := fmt.Sprintf("spec.parentRefs[%d].namespace", i)
			r.problem(NoTarget, r.at(field), field, "a route is for Servers of its own namespace: this one does not count")
			continue
		}
		if name := string(p.Name); !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

// attachServers keeps a route for Servers. judge: nobody else has it judged.
func (r *reader) attachServers(to route.Route, servers []string, judge bool) {
	if judge {
		r.judge(&cluster.Route{Object: r.object, Route: to})
	}
	r.objects.Policies.Routes = append(r.objects.Policies.Routes, &policy.Route{Object: r.ours(), Group: r.group, Route: to, Servers: servers})
}
