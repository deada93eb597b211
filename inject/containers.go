package inject

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The names are Linkerd's: dashboards, scrape configurations and log commands look
// for them, and Linkerd's own injector leaves pods alone that have them.
const (
	initName  = "linkerd-init"
	proxyName = "linkerd-proxy"

	volumePrefix   = "meshctl-"
	podInfoVolume  = volumePrefix + "podinfo"
	identityVolume = volumePrefix + "identity"
	runVolume      = volumePrefix + "run"

	podInfoDir  = "/etc/podinfo"
	identityDir = "/var/run/meshctl/identity"

	// initUser is no user in particular, above all not the proxy's.
	initUser = 65534
)

func pointer[T any](v T) *T { return &v }

// restricted is the security context that both containers share.
func restricted(user, group int64) *corev1.SecurityContext {
	return &corev1.SecurityContext{
		AllowPrivilegeEscalation: pointer(false),
		Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		ReadOnlyRootFilesystem:   pointer(true),
		RunAsGroup:               pointer(group),
		RunAsNonRoot:             pointer(true),
		RunAsUser:                pointer(user),
		SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
}

// initContainer writes the rules and ends.
func (pl *plan) initContainer() corev1.Container {
	c := corev1.Container{
		Name:                     initName,
		Image:                    pl.options.Image,
		ImagePullPolicy:          corev1.PullPolicy(pl.settings.pullPolicy),
		Args:                     append([]string{"redirect", "--rules-only"}, pl.initArgs()...),
		Resources:                pl.settings.resources,
		SecurityContext:          restricted(initUser, initUser),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if pl.options.InitImage != "" {
		c.Image = pl.options.InitImage
	}
	c.SecurityContext.Capabilities.Add = []corev1.Capability{"NET_ADMIN"}
	if pl.legacy() {
		// iptables-legacy opens a raw socket, and locks /run/xtables.lock.
		c.SecurityContext.Capabilities.Add = append(c.SecurityContext.Capabilities.Add, "NET_RAW")
		c.VolumeMounts = []corev1.VolumeMount{{Name: runVolume, MountPath: "/run"}}
	}
	if pl.settings.privileged {
		// /proc/sys is read-only for everybody else.
		c.SecurityContext = &corev1.SecurityContext{Privileged: pointer(true), ReadOnlyRootFilesystem: pointer(true), RunAsNonRoot: pointer(false), RunAsUser: pointer(int64(0))}
	}
	return c
}

// legacy reports whether the rules may be written by iptables-legacy.
func (pl *plan) legacy() bool {
	return pl.options.Backend == "iptables-legacy" || pl.options.Backend == "iptables"
}

func (pl *plan) initArgs() []string {
	s := pl.settings
	var out []string
	if b := pl.options.Backend; b != "" && b != "auto" {
		out = append(out, "--backend="+b)
	}
	if list, said := s.skipInboundList(); said {
		out = append(out, "--skip-inbound-ports="+list)
	}
	return append(append(out, s.initArgs...), pl.options.InitArgs...)
}

// skipInboundList is what the rules leave alone inbound: what was asked for, and
// the proxy's own ports where they were moved.
func (s *settings) skipInboundList() (list string, said bool) {
	if s.skipInbound == nil && len(s.leaveInbound) == 0 {
		return "", false
	}
	list = "+" // to the default
	if s.skipInbound != nil {
		list = trimList(*s.skipInbound)
	}
	for _, port := range s.leaveInbound {
		if list != "" && list != "+" {
			list += ","
		}
		list += port
	}
	return list, true
}

// proxyContainer is the sidecar.
func (pl *plan) proxyContainer() corev1.Container {
	s := pl.settings
	probe := func(path string) corev1.ProbeHandler {
		return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(int32(s.adminPort))}}
	}
	c := corev1.Container{
		Name:            proxyName,
		Image:           pl.options.Image,
		ImagePullPolicy: corev1.PullPolicy(s.pullPolicy),
		Args:            append([]string{"proxy"}, pl.proxyArgs()...),
		Ports: []corev1.ContainerPort{
			{Name: "linkerd-proxy", ContainerPort: int32(s.inboundPort)},
			{Name: "linkerd-admin", ContainerPort: int32(s.adminPort)},
		},
		Env:                      append(fieldEnv(), s.env...),
		Resources:                s.resources,
		VolumeMounts:             []corev1.VolumeMount{{Name: podInfoVolume, MountPath: podInfoDir, ReadOnly: true}},
		StartupProbe:             &corev1.Probe{ProbeHandler: probe("/ready"), PeriodSeconds: 1, FailureThreshold: 120},
		ReadinessProbe:           &corev1.Probe{ProbeHandler: probe("/ready"), PeriodSeconds: 10, TimeoutSeconds: 5},
		LivenessProbe:            &corev1.Probe{ProbeHandler: probe("/live"), PeriodSeconds: 10, TimeoutSeconds: 5},
		SecurityContext:          restricted(int64(s.uid), int64(s.gid)),
		TerminationMessagePolicy: corev1.TerminationMessageFallbackToLogsOnError,
	}
	if !pl.options.Identity.None() {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: identityVolume, MountPath: identityDir, ReadOnly: true})
	}
	if s.waitBeforeExit > 0 {
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: s.waitBeforeExit}}}
	}
	switch {
	case s.native:
		c.RestartPolicy = pointer(corev1.ContainerRestartPolicyAlways)
	case s.await:
		// The kubelet starts the next container when this command has ended.
		if c.Lifecycle == nil {
			c.Lifecycle = &corev1.Lifecycle{}
		}
		c.Lifecycle.PostStart = &corev1.LifecycleHandler{Exec: &corev1.ExecAction{
			Command: []string{"/meshctl", "await", fmt.Sprintf("--admin=127.0.0.1:%d", s.adminPort)},
		}}
	}
	return c
}

func (pl *plan) proxyArgs() []string {
	s := pl.settings
	out := []string{"--annotations=" + podInfoDir + "/annotations", "--labels=" + podInfoDir + "/labels", "--namespace=$(POD_NAMESPACE)"}
	if names := pl.portNames(); names != "" {
		out = append(out, "--port-names="+names)
	}
	out = append(append(out, pl.identityArgs()...), s.proxyArgs...)
	return append(out, pl.options.ProxyArgs...)
}

// portNames are the names of the pod's TCP ports, which annotations and Servers
// may use: "http=8080,mysql=3306".
func (pl *plan) portNames() string {
	var out []string
	for _, c := range pl.pod.Spec.Containers {
		for _, p := range c.Ports {
			if p.Name != "" && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP) {
				out = append(out, fmt.Sprintf("%s=%d", p.Name, p.ContainerPort))
			}
		}
	}
	return strings.Join(out, ",")
}

func (pl *plan) identityArgs() []string {
	var out []string
	id := pl.options.Identity
	switch {
	case id.CSI == SPIRECSI:
		out = append(out, "--spiffe-socket="+identityDir+"/spire-agent.sock")
	case !id.None():
		out = append(out, "--identity-dir="+identityDir)
	}
	if id.TrustDomain != "" {
		out = append(out, "--identity-trust-domain="+id.TrustDomain)
	}
	return out
}

// fieldEnv tells the proxy which pod it is in.
func fieldEnv() []corev1.EnvVar {
	var out []corev1.EnvVar
	for _, e := range [][2]string{
		{"POD_NAME", "metadata.name"},
		{"POD_NAMESPACE", "metadata.namespace"},
		{"POD_IP", "status.podIP"},
		{"NODE_NAME", "spec.nodeName"},
	} {
		out = append(out, corev1.EnvVar{Name: e[0], ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: e[1]}}})
	}
	return out
}

// volumes are what the containers mount.
func (pl *plan) volumes() []corev1.Volume {
	field := func(name string) corev1.DownwardAPIVolumeFile {
		return corev1.DownwardAPIVolumeFile{Path: name, FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata." + name}}
	}
	out := []corev1.Volume{{Name: podInfoVolume, VolumeSource: corev1.VolumeSource{
		DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: []corev1.DownwardAPIVolumeFile{field("annotations"), field("labels")}},
	}}}
	if pl.legacy() {
		out = append(out, corev1.Volume{Name: runVolume, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory}}})
	}
	id := pl.options.Identity
	switch {
	case id.Secret != "":
		// Only root and the pod's fsGroup may read it: see fsGroup.
		out = append(out, corev1.Volume{Name: identityVolume, VolumeSource: corev1.VolumeSource{
			Secret: &corev1.SecretVolumeSource{SecretName: id.Secret, DefaultMode: pointer(int32(0o440))},
		}})
	case id.CSI != "":
		v := &corev1.CSIVolumeSource{Driver: id.CSI, ReadOnly: pointer(true)}
		if id.CSI == CertManagerCSI {
			v.VolumeAttributes = map[string]string{CertManagerCSI + "/fs-group": fmt.Sprint(pl.settings.gid)}
		}
		out = append(out, corev1.Volume{Name: identityVolume, VolumeSource: corev1.VolumeSource{CSI: v}})
	}
	return out
}
