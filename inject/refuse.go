package inject

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/meshctl/meshctl/inject/patch"
	"github.com/meshctl/meshctl/internal/annotation"
)

// InjectKey is the annotation of pods and namespaces that says whether they are
// injected.
const InjectKey = "linkerd.io/inject"

// skipped says why a pod is left out, by its annotation or its namespace's.
func (p *pod) skipped(ns Namespace, o Options) string {
	value, where := p.Annotations[InjectKey], "the pod"
	if value == "" {
		value, where = ns.Annotations[InjectKey], "namespace "+ns.Name
	}
	switch value {
	case "disabled", "false":
		return InjectKey + ": disabled on " + where
	case "":
		if o.OnlyEnabled {
			return "no " + InjectKey + ": enabled on the pod or its namespace"
		}
	}
	return ""
}

const leaveOut = InjectKey + ": disabled on the pod template leaves it out"

// refuse finds pods that would not work with the proxy in them.
func (p *pod) refuse() error {
	switch {
	case p.Spec.HostNetwork:
		return &Problem{Pointer: "/spec/hostNetwork", Text: "it uses the node's network (hostNetwork), whose traffic would be redirected for every process of the node", Do: leaveOut}
	case p.Spec.OS != nil && p.Spec.OS.Name == corev1.Windows:
		return &Problem{Pointer: "/spec/os", Text: "it runs on Windows, which has no netfilter", Do: leaveOut}
	case p.Spec.NodeSelector[corev1.LabelOSStable] == "windows":
		return &Problem{Pointer: "/spec/nodeSelector", Text: "it runs on Windows, which has no netfilter", Do: leaveOut}
	}
	for list, containers := range map[string][]corev1.Container{"initContainers": p.Spec.InitContainers, "containers": p.Spec.Containers} {
		for i, c := range containers {
			if c.Name == initName || c.Name == proxyName || c.Name == "linkerd-network-validator" {
				return &Problem{Pointer: at(list, i), Text: fmt.Sprintf("it has a container %s that is not meshctl's", c.Name), Do: "take Linkerd's proxy out first (linkerd uninject)"}
			}
		}
	}
	for i, v := range p.Spec.Volumes {
		if ownVolume(v.Name) {
			return &Problem{Pointer: at("volumes", i), Text: fmt.Sprintf("it has a volume %s, the name of one of ours", v.Name), Do: "rename it"}
		}
	}
	return nil
}

func at(list string, i int) string { return patch.Pointer("spec", list, fmt.Sprint(i)) }

// conflicts finds containers that use what the proxy needs for itself.
func (p *pod) conflicts(s *settings) (warnings []Warning, err error) {
	var podUser *int64
	if p.Spec.SecurityContext != nil {
		podUser = p.Spec.SecurityContext.RunAsUser
	}
	user := func(c corev1.Container) *int64 {
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			return c.SecurityContext.RunAsUser
		}
		return podUser
	}
	for i, c := range p.Spec.Containers {
		if u := user(c); u != nil && *u == int64(s.uid) {
			return nil, &Problem{
				Pointer: at("containers", i),
				Text:    fmt.Sprintf("container %s runs as user %d, as the proxy does: its connections would go around the proxy", c.Name, s.uid),
				Do:      "give it another runAsUser, or the proxy another user with " + key("proxy-uid"),
			}
		}
		for _, port := range c.Ports {
			if own := s.portName(port.ContainerPort); own != "" && port.Protocol != corev1.ProtocolUDP && port.Protocol != corev1.ProtocolSCTP {
				return nil, &Problem{
					Pointer: at("containers", i),
					Text:    fmt.Sprintf("container %s has port %d, which is the proxy's %s", c.Name, port.ContainerPort, own),
					Do:      "move the proxy's with " + key(own),
				}
			}
		}
	}
	for i, c := range p.Spec.InitContainers {
		if u := user(c); u != nil && *u == int64(s.uid) {
			warnings = append(warnings, Warning{at("initContainers", i), fmt.Sprintf("init container %s runs as the proxy's user %d: its connections go around the proxy, which is not needed with a native sidecar", c.Name, s.uid)})
		} else if !s.native && (c.RestartPolicy == nil || *c.RestartPolicy != corev1.ContainerRestartPolicyAlways) {
			warnings = append(warnings, Warning{at("initContainers", i), fmt.Sprintf("init container %s has no network: its connections are redirected to a proxy that starts later; use a native sidecar, or run it as user %d", c.Name, s.uid)})
		}
	}
	return warnings, nil
}

// portName says which of the proxy's ports a port is, in the words of the
// annotation that moves it.
func (s *settings) portName(port int32) string {
	switch uint16(port) {
	case s.inboundPort:
		return "inbound-port"
	case s.outboundPort:
		return "outbound-port"
	case s.adminPort:
		return "admin-port"
	}
	return ""
}

// ends compares the proxy's times with the pod's.
func (p *pod) ends(s *settings) ([]Warning, error) {
	grace := int64(corev1.DefaultTerminationGracePeriodSeconds)
	if p.Spec.TerminationGracePeriodSeconds != nil {
		grace = *p.Spec.TerminationGracePeriodSeconds
	}
	var out []Warning
	if s.shutdownGrace > 0 && s.shutdownGrace.Seconds() > float64(grace) {
		out = append(out, Warning{"/spec", fmt.Sprintf("the proxy may drain for %v, but the pod is killed after %d s: raise terminationGracePeriodSeconds", s.shutdownGrace, grace)})
	}
	if s.waitBeforeExit > 0 && s.waitBeforeExit >= grace { // which the API server refuses
		k := annotation.AlphaPrefix + "proxy-wait-before-exit-seconds"
		return nil, &Problem{
			Pointer: annotationPointer(k),
			Text:    fmt.Sprintf("annotation %s: the proxy would wait %d s, and the pod is killed after %d s", k, s.waitBeforeExit, grace),
			Do:      "lower it, or raise terminationGracePeriodSeconds",
		}
	}
	return out, nil
}

// ours reports whether a container is one that inject made.
func ours(c map[string]any) bool {
	args, _ := c["args"].([]any)
	if len(args) == 0 {
		return false
	}
	switch c["name"] {
	case initName:
		return args[0] == "redirect"
	case proxyName:
		return args[0] == "proxy"
	}
	return false
}

func ownVolume(name string) bool { return strings.HasPrefix(name, volumePrefix) }
