package inject

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/meshctl/meshctl/internal/annotation"
)

// initArg and proxyArg pass a value on as it is.
func initArg(flag string) func(*settings, string) error {
	return func(s *settings, v string) error { s.initArgs = append(s.initArgs, "--"+flag+"="+v); return nil }
}

func proxyArg(flag string) func(*settings, string) error {
	return func(s *settings, v string) error { s.proxyArgs = append(s.proxyArgs, "--"+flag+"="+v); return nil }
}

// none is of annotations whose effect needs nothing of inject.
func none(*settings, string) error { return nil }

func ruleSettings() []Setting {
	return []Setting{
		{"skip-inbound-ports", "ports of the pod whose connections go around the proxy; replaces 4567-4568, a leading + adds to that", func(s *settings, v string) error {
			s.skipInbound = &v
			return nil
		}},
		{"skip-outbound-ports", "ports of servers to which connections go around the proxy; replaces 4567-4568, a leading + adds to that", initArg("skip-outbound-ports")},
		{"skip-subnets", "subnets whose connections go around the proxy, in both directions", func(s *settings, v string) error {
			if strings.TrimSpace(v) == "" {
				return nil
			}
			return initArg("skip-subnets")(s, strings.ReplaceAll(v, " ", ""))
		}},
		{"close-wait-timeout", "the kernel's nf_conntrack_tcp_timeout_close_wait in the pod, for Linkerd's sake; the init container becomes privileged for it", func(s *settings, v string) error {
			d, err := annotation.ParseDuration(v)
			switch {
			case err != nil:
				return err
			case d == 0:
				return nil
			case d < time.Second || d > 1<<31*time.Second:
				return fmt.Errorf("%q: want whole seconds", v)
			}
			s.privileged = true
			return initArg("timeout-close-wait-secs")(s, fmt.Sprint(int64(d/time.Second)))
		}},
		{"proxy-uid", "user that the proxy runs as; its own connections are not redirected", func(s *settings, v string) (err error) {
			if s.uid, err = annotation.ParseID(v); err != nil {
				return err
			}
			return initArg("proxy-uid")(s, v)
		}},
		{"proxy-gid", "group that the proxy runs as; connections of its members are not redirected", func(s *settings, v string) (err error) {
			if s.gid, err = annotation.ParseID(v); err != nil {
				return err
			}
			return initArg("proxy-gid")(s, v)
		}},
	}
}

func portSettings() []Setting {
	return []Setting{
		{"inbound-port", "the proxy's port for connections that come in (4143)", func(s *settings, v string) (err error) {
			if s.inboundPort, err = annotation.ParsePort(v); err != nil {
				return err
			}
			s.proxyArgs = append(s.proxyArgs, "--inbound-listen=[::]:"+v)
			return initArg("inbound-port")(s, v)
		}},
		{"outbound-port", "the proxy's port for connections that the application opens (4140)", func(s *settings, v string) (err error) {
			if s.outboundPort, err = annotation.ParsePort(v); err != nil {
				return err
			}
			s.proxyArgs = append(s.proxyArgs, "--outbound-listen=127.0.0.1:"+v+",[::1]:"+v)
			return initArg("outbound-port")(s, v)
		}},
		{"admin-port", "the proxy's port for probes and metrics (4191); it is left alone by the rules", func(s *settings, v string) (err error) {
			if s.adminPort, err = annotation.ParsePort(v); err != nil {
				return err
			}
			s.leaveInbound = append(s.leaveInbound, v)
			return proxyArg("admin-listen")(s, "[::]:"+v)
		}},
		{"control-port", "a further port that the rules leave alone inbound (4190 always is)", func(s *settings, v string) error {
			s.leaveInbound = append(s.leaveInbound, v)
			return nil
		}},
		{"pod-inbound-ports", "nothing needs to be listed: connections to every port of the pod are served", none},
		{"opaque-ports", "ports of the pod whose connections are passed on as TCP without detection; a change counts at once, without a restart", none},
	}
}

func proxySettings() []Setting {
	return []Setting{
		{"shutdown-grace-period", "how long the proxy may drain (2m); warned of where the pod is killed earlier", func(s *settings, v string) (err error) {
			if s.shutdownGrace, err = annotation.ParseDuration(v); err != nil {
				return err
			}
			return proxyArg("shutdown-grace-period")(s, s.shutdownGrace.String())
		}},
		{"proxy-inbound-connect-timeout", "how long connecting to the application may take", connectTimeout("inbound")},
		{"proxy-outbound-connect-timeout", "how long connecting to a server may take", connectTimeout("outbound")},
		{"proxy-disable-inbound-protocol-detect-timeout", "`true`: the proxy waits for a client's first bytes for ever", noDetectTimeout("inbound")},
		{"proxy-disable-outbound-protocol-detect-timeout", "`true`: the proxy waits for the application's first bytes for ever", noDetectTimeout("outbound")},
		{"proxy-admin-shutdown", "`disabled`: no POST /shutdown on the admin port, which otherwise is there for the pod's own containers", func(s *settings, v string) error {
			on, err := annotation.ParseBool(v)
			if err == nil && !on {
				s.proxyArgs = append(s.proxyArgs, "--no-admin-shutdown")
			}
			return err
		}},
		{"access-log", "a line for each request and connection on the proxy's stdout: `apache` or `json`", func(s *settings, v string) error {
			if err := oneOf("apache", "json")(v); err != nil {
				return err
			}
			return proxyArg("access-log")(s, v)
		}},
		{"proxy-log-level", "`debug`, `info`, `warn`, `error`; of a list as linkerd2-proxy takes it (`warn,linkerd=info`) the level of linkerd", func(s *settings, v string) error {
			level, err := logLevel(v)
			if err != nil {
				return err
			}
			s.initArgs = append(s.initArgs, "--log-level="+level)
			return proxyArg("log-level")(s, level)
		}},
		{"proxy-log-format", "`plain` or `json`", func(s *settings, v string) error {
			if err := oneOf("plain", "json")(v); err != nil {
				return err
			}
			s.initArgs = append(s.initArgs, "--log-format="+v)
			return proxyArg("log-format")(s, v)
		}},
		{"proxy-log-http-headers", "only `off`, which is how it is: headers are never in the log", oneOfSetting("off", "disabled")},
		{"default-inbound-policy", "who may call the pod's ports that no Server selects: `all-unauthenticated`, `all-authenticated`, `cluster-unauthenticated`, `cluster-authenticated`, `deny` or `audit`", none},
		{"proxy-outbound-discovery-cache-unused-timeout", "how long a control plane is asked about a destination that nothing goes to any more; counts with `--destination`", func(s *settings, v string) error {
			d, err := annotation.ParseDuration(v)
			if err != nil {
				return err
			}
			return proxyArg("destination-idle")(s, d.String())
		}},
		{"proxy-inbound-discovery-cache-unused-timeout", "nothing needs to be set: what counts for the pod's own ports is always kept", none},
		{"enable-external-profiles", "nothing needs to be enabled: what is known of an address outside of the cluster always counts", none},
	}
}

func containerSettings() []Setting {
	return []Setting{
		{"proxy-enable-native-sidecar", "`false`: an ordinary container, as `--no-native-sidecar`; `true`: a native sidecar", func(s *settings, v string) (err error) {
			s.native, err = annotation.ParseBool(v)
			return err
		}},
		{"proxy-await", "`disabled`: without a native sidecar, the application's containers do not wait for the proxy", func(s *settings, v string) (err error) {
			s.await, err = annotation.ParseBool(v)
			return err
		}},
		{annotation.AlphaPrefix + "proxy-wait-before-exit-seconds", "the proxy goes on for so long after the pod is asked to end; needs Kubernetes 1.30", func(s *settings, v string) error {
			n, err := annotation.ParseID(v)
			if err != nil || n > 86400 {
				return fmt.Errorf("%q is no number of seconds up to a day", v)
			}
			s.waitBeforeExit = int64(n)
			return nil
		}},
		{"proxy-additional-env", "environment variables of the proxy, a JSON list of `{\"name\": ..., \"value\": ...}`; the namespace's come first. Every flag of the proxy is one: `MESHCTL_DETECT_TIMEOUT`", (*settings).addEnv},
		{"proxy-cpu-request", "CPU that both containers ask for", quantity(corev1.ResourceCPU, false)},
		{"proxy-cpu-limit", "CPU that they may use", quantity(corev1.ResourceCPU, true)},
		{"proxy-memory-request", "memory that both containers ask for", quantity(corev1.ResourceMemory, false)},
		{"proxy-memory-limit", "memory that they may use", quantity(corev1.ResourceMemory, true)},
		{"proxy-ephemeral-storage-request", "ephemeral storage that both containers ask for", quantity(corev1.ResourceEphemeralStorage, false)},
		{"proxy-ephemeral-storage-limit", "ephemeral storage that they may use", quantity(corev1.ResourceEphemeralStorage, true)},
		{"image-pull-policy", "`Always`, `IfNotPresent` or `Never`", func(s *settings, v string) error {
			s.pullPolicy = v
			return oneOf("Always", "IfNotPresent", "Never")(v)
		}},
	}
}
