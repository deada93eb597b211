package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/meshctl/meshctl/inject"
)

// injectFlags are the flags of `meshctl inject`.
type injectFlags struct {
	manifestFlags
	source  inject.Source
	options inject.Options
	csi     string
}

func newInjectCommand() *cobra.Command {
	o := &injectFlags{}
	cmd := &cobra.Command{
		Use:   "inject [flags] FILE|DIRECTORY|-...",
		Short: "Put the init container and the proxy into Kubernetes manifests",
		Long: `Read Kubernetes manifests, YAML or JSON, and write them with meshctl in every
workload: an init container that writes the rules, and the proxy as a native
sidecar. Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet,
ReplicationController, Job, CronJob and Lists of them are changed; everything else
is written as it was read, with its comments.

Annotations of the pod template, and of the Namespace where the template has none,
say how: see docs/annotations.md. linkerd.io/inject: disabled leaves a workload
out. What cannot be injected is an error, exit code 65, and nothing is written.`,
		Example: `  meshctl inject deploy.yaml | kubectl apply -f -
  kubectl get deploy -o yaml | meshctl inject - | kubectl apply -f -
  meshctl inject --output out manifests/`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd, args) },
	}
	f := cmd.Flags()
	o.manifestFlags.register(f)
	o.register(f)
	return cmd
}

func (o *injectFlags) register(f *pflag.FlagSet) {
	c := &o.options
	f.StringVar(&c.Image, "image", "", "image of both containers (default: localhost/meshctl:VERSION, as make image builds it)")
	f.StringVar(&c.InitImage, "init-image", "", "image of the init container, such as one with iptables in it (default: --image)")
	f.StringVar(&c.PullPolicy, "image-pull-policy", "", "Always, IfNotPresent or Never (default: Kubernetes' own)")
	f.StringVar(&c.Backend, "backend", "auto", "how the init container writes the rules: auto, nftables, iptables-nft, iptables-legacy or iptables")
	f.BoolVar(&c.NoNativeSidecar, "no-native-sidecar", false, "the proxy as an ordinary container, for Kubernetes before 1.29")
	f.BoolVar(&c.OnlyEnabled, "only-enabled", false, "only workloads with linkerd.io/inject: enabled on the pod template or the Namespace")
	f.StringVar(&o.source.Namespace, "namespace", "default", "namespace of objects that name none")
	f.StringToStringVar(&o.source.Annotations, "namespace-annotation", nil, "KEY=VALUE that counts for namespaces whose object is not in the input; may be given again")
	f.StringVar(&c.Identity.Secret, "identity-secret", "", "Secret with tls.crt, tls.key and ca.crt, in the pod's namespace: turns mTLS on")
	f.StringVar(&o.csi, "identity-csi", "", "CSI driver that gives each pod its certificate: cert-manager ("+inject.CertManagerCSI+") or spire ("+inject.SPIRECSI+"): turns mTLS on")
	f.StringVar(&c.Identity.TrustDomain, "identity-trust-domain", "", "trust domain of the identities (default: the proxy's own default)")
	f.StringVar(&c.ControlPlaneNamespace, "control-plane-namespace", "linkerd", "value of the label linkerd.io/control-plane-ns, which marks pods that take mTLS")
	f.StringArrayVar(&c.InitArgs, "redirect-arg", nil, "further argument of meshctl redirect; may be given again")
	f.StringArrayVar(&c.ProxyArgs, "proxy-arg", nil, "further argument of meshctl proxy, as --proxy-arg=--early-dial-after=1s; may be given again")
}

func (o *injectFlags) run(cmd *cobra.Command, args []string) error {
	o.options.Version = version
	if o.options.Image == "" {
		o.options.Image = "localhost/meshctl:" + version
	}
	switch o.csi {
	case "cert-manager":
		o.options.Identity.CSI = inject.CertManagerCSI
	case "spire":
		o.options.Identity.CSI = inject.SPIRECSI
	default:
		o.options.Identity.CSI = o.csi
	}
	if err := o.options.Validate(); err != nil {
		return usagef("%w", err)
	}
	files, err := openManifests(args, cmd.InOrStdin())
	if err != nil {
		return err
	}
	report, err := inject.Manifests(files, o.source, o.options)
	tell(cmd.ErrOrStderr(), report)
	if err != nil {
		return injectFault(cmd.ErrOrStderr(), err, "annotate what cannot be injected with linkerd.io/inject: disabled")
	}
	return o.write(cmd.OutOrStdout(), files)
}

func newUninjectCommand() *cobra.Command {
	o := &manifestFlags{}
	cmd := &cobra.Command{
		Use:   "uninject [flags] FILE|DIRECTORY|-...",
		Short: "Take out of Kubernetes manifests what meshctl inject put in",
		Long: `Read Kubernetes manifests and write them without the containers, volumes,
annotations and labels that "meshctl inject" put in. Where the text is as inject
wrote it, the result is what inject had read, byte for byte.`,
		Example: `  meshctl uninject injected.yaml | kubectl apply -f -`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			files, err := openManifests(args, cmd.InOrStdin())
			if err != nil {
				return err
			}
			report, err := inject.Uninject(files)
			tell(cmd.ErrOrStderr(), report)
			if err != nil {
				return injectFault(cmd.ErrOrStderr(), err, "")
			}
			return o.write(cmd.OutOrStdout(), files)
		},
	}
	o.register(cmd.Flags())
	return cmd
}

// tell writes what was done.
func tell(w io.Writer, r inject.Report) {
	for _, n := range r.Warnings {
		fmt.Fprintf(w, "meshctl: warning: %v\n", n)
	}
	for _, n := range append(r.Skipped, r.Changed...) {
		fmt.Fprintf(w, "meshctl: %v\n", n)
	}
}

// injectFault writes every fault on a line of its own, and returns the error that
// ends the command.
func injectFault(w io.Writer, err error, hint string) error {
	faults, ok := errors.AsType[inject.Faults](err)
	if !ok {
		return err
	}
	for _, n := range faults {
		fmt.Fprintf(w, "meshctl: error: %v\n", n)
	}
	return faultyManifests{len(faults), hint}
}

// faultyManifests ends a command whose input has faults; they are told already.
type faultyManifests struct {
	faults int
	hint   string
}

func (e faultyManifests) Error() string {
	return fmt.Sprintf("%d fault%s in the manifests; nothing was written", e.faults, plural(e.faults))
}
func (e faultyManifests) ExitCode() int { return exitInput }
func (e faultyManifests) Hint() string  { return e.hint }
