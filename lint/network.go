package lint

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/meshctl/meshctl/internal/annotation"
)

// networkPolicy is what matters here of networking.k8s.io/v1.
type networkPolicy struct {
	*Object `json:"-"`
	Spec    struct {
		PodSelector metav1.LabelSelector `json:"podSelector"`
		PolicyTypes []string             `json:"policyTypes"`
		Ingress     []networkRule        `json:"ingress"`
		Egress      []networkRule        `json:"egress"`
	} `json:"spec"`
}

type networkRule struct {
	Ports []networkPort `json:"ports"`
	From  []networkPeer `json:"from"`
	To    []networkPeer `json:"to"`
}

type networkPort struct {
	Protocol string              `json:"protocol"`
	Port     *intstr.IntOrString `json:"port"`
	EndPort  *int32              `json:"endPort"`
}

type networkPeer struct {
	IPBlock *struct {
		CIDR string `json:"cidr"`
	} `json:"ipBlock"`
}

// direction is one side of a policy.
type direction struct {
	policyType, field string
	rules             []networkRule
}

func (n *networkPolicy) directions() []direction {
	ingress := len(n.Spec.PolicyTypes) == 0 || slices.Contains(n.Spec.PolicyTypes, "Ingress")
	egress := len(n.Spec.PolicyTypes) == 0 && len(n.Spec.Egress) > 0 || slices.Contains(n.Spec.PolicyTypes, "Egress")
	var out []direction
	if ingress {
		out = append(out, direction{"Ingress", "spec.ingress", n.Spec.Ingress})
	}
	if egress {
		out = append(out, direction{"Egress", "spec.egress", n.Spec.Egress})
	}
	return out
}

// checkNetworkPolicies looks at policies over meshed pods. What comes from a meshed
// client comes to the proxy's inbound port, whatever port it was meant for: a policy
// for application ports alone closes the mesh, and one that opens the proxy's port
// opens all ports behind it. Policies add up, so one is enough to open the port.
func checkNetworkPolicies(w *world) {
	var all []*networkPolicy
	for _, o := range w.objects {
		if o.Group == "networking.k8s.io" && o.Kind == "NetworkPolicy" {
			n := &networkPolicy{Object: o}
			if w.read(o, n) {
				all = append(all, n)
			}
		}
	}
	for _, n := range all {
		for _, d := range n.directions() {
			for _, p := range w.workloads {
				if w.meshed(p) && n.covers(p) && w.judgeRules(n, d, p, all) {
					break // one workload is example enough
				}
			}
		}
	}
}

func (n *networkPolicy) covers(p *workload) bool {
	if n.Namespace != p.Namespace {
		return false
	}
	s, err := metav1.LabelSelectorAsSelector(&n.Spec.PodSelector)
	return err == nil && s.Matches(labels.Set(p.labels))
}

// judgeRules reports whether there was something to say of a policy over a workload.
func (w *world) judgeRules(n *networkPolicy, d direction, p *workload, all []*networkPolicy) bool {
	port := int32(inboundPort)
	if v, _, _, ok := w.annotation(p, annotation.InboundPort); ok && d.policyType == "Ingress" {
		if own, err := annotation.ParsePort(v); err == nil {
			port = int32(own)
		}
	}
	open := openedBySome(all, d.policyType, p, port)
	found := false
	for i, r := range d.rules {
		tcpPorts, opens, further := r.open(port)
		if len(r.Ports) == 0 || tcpPorts == 0 || d.policyType == "Egress" && r.onlyOutside() {
			continue
		}
		field := d.field + "[" + itoa(i) + "].ports"
		switch {
		case !opens && !open:
			w.find(ProxyPortBlocked, n.Object, field, "add port "+itoa(int(port))+" for TCP",
				"connections between meshed pods go to port %d, which no policy over %v lets through", port, p.Object)
			found = true
		case opens && further && d.policyType == "Ingress":
			w.find(PortRulesBypassed, n.Object, field, "say by a Server and an AuthorizationPolicy who may call which port",
				"whoever is meshed and may reach port %d reaches every port of %v through it, also those that are not in the list", port, p.Object)
			found = true
		}
	}
	return found
}

// openedBySome reports whether any policy over a workload lets the port through.
func openedBySome(all []*networkPolicy, policyType string, p *workload, port int32) bool {
	for _, n := range all {
		if !n.covers(p) {
			continue
		}
		for _, d := range n.directions() {
			for _, r := range d.rules {
				if _, opens, _ := r.open(port); d.policyType == policyType && opens {
					return true
				}
			}
		}
	}
	return false
}

// open counts a rule's TCP ports, and says whether the proxy's port is one of them,
// and whether there are others. A rule without ports opens all.
func (r networkRule) open(proxy int32) (tcpPorts int, opens, others bool) {
	if len(r.Ports) == 0 {
		return 0, true, false
	}
	for _, p := range r.Ports {
		if p.Protocol != "" && p.Protocol != "TCP" {
			continue
		}
		tcpPorts++
		switch {
		case p.Port == nil:
			return tcpPorts, true, false // all ports are meant
		case p.Port.Type == intstr.String && p.Port.StrVal == "linkerd-proxy":
			opens = true
		case p.Port.Type == intstr.String:
			others = true
		case p.Port.IntVal == proxy && p.EndPort == nil:
			opens = true
		case p.EndPort != nil && p.Port.IntVal <= proxy && proxy <= *p.EndPort:
			opens = true
		default:
			others = true
		}
	}
	return tcpPorts, opens, others
}

// onlyOutside reports whether a rule of egress is for addresses and not for pods.
func (r networkRule) onlyOutside() bool {
	return len(r.To) > 0 && !slices.ContainsFunc(r.To, func(p networkPeer) bool { return p.IPBlock == nil })
}
