package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/lint"
	"github.com/meshctl/meshctl/lint/live"
	"github.com/meshctl/meshctl/proxy/policy"
)

// lintFlags are the flags of `meshctl lint`.
type lintFlags struct {
	output, namespace, kubernetes string
	kubeconfig, context           string
	ignore                        []string
	injected                      bool
}

func newLintCommand() *cobra.Command {
	l := &lintFlags{}
	cmd := &cobra.Command{
		Use:   "lint [FILE | DIRECTORY | -]... | --kubeconfig FILE",
		Short: "Look for mistakes in Kubernetes manifests that a mesh makes costly",
		Long: `Read manifests (YAML or JSON, Lists too, "-" is standard input; of directories
all *.yaml, *.yml and *.json below them) and tell what is wrong with them in a mesh:
annotations that are misspelt, have a wrong value or stand where nobody reads them;
ports that a Service and its pods declare differently; lists of skipped ports on
the wrong side; NetworkPolicies that close the proxy's port; Pod Security levels
that refuse the init container; and more. Give it everything that belongs together:
many mistakes are between two objects. With --kubeconfig the objects are those of a
cluster.

Each finding has a code, which docs/lint.md explains and which never changes. The
exit code is 2 if there is an error or a warning; a note does not count.`,
		Example: `  meshctl lint deploy/
  kustomize build . | meshctl lint -
  meshctl lint -o sarif deploy/ > lint.sarif
  meshctl lint --kubeconfig ~/.kube/config`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return l.run(cmd, args)
		},
	}
	f := cmd.Flags()
	f.StringVarP(&l.output, "output", "o", "text", "text, json or sarif")
	f.StringVarP(&l.namespace, "namespace", "n", "default", "namespace of objects that do not say theirs; with --kubeconfig the only one that is looked at")
	f.StringVar(&l.kubeconfig, "kubeconfig", "", "look at the cluster of the Kubernetes API that this file names, as kubectl does, instead of files")
	f.StringVar(&l.context, "context", "", "context of --kubeconfig; empty: its current one")
	f.StringSliceVar(&l.ignore, "ignore", nil, "codes that are not reported, such as MESH013")
	f.BoolVar(&l.injected, "injected", false, "take every workload for a meshed one, also without linkerd.io/inject")
	f.StringVar(&l.kubernetes, "kubernetes-version", "", "the cluster's version, such as 1.28 (default: one with native sidecars)")
	return cmd
}

// linted is the whole answer, as -o json writes it.
type linted struct {
	Findings []lint.Finding `json:"findings"`
	Files    int            `json:"files"`
	Objects  int            `json:"objects"`
	LeftOut  []string       `json:"left_out,omitempty"` // of a cluster: what may not be listed

	objects []*lint.Object
}

func (l *lintFlags) run(cmd *cobra.Command, args []string) error {
	config, err := l.config()
	if err != nil {
		return err
	}
	var all linted
	switch {
	case l.kubeconfig != "" && len(args) > 0:
		return usagef("either files or --kubeconfig")
	case l.kubeconfig != "":
		err = l.cluster(cmd, &all, &config)
	case len(args) == 0:
		return &usageError{err: fmt.Errorf("nothing to look at"), hint: "name files or directories, - for standard input, or --kubeconfig"}
	default:
		err = l.files(args, cmd.InOrStdin(), &all)
	}
	if err != nil {
		return err
	}
	all.Objects = len(all.objects)
	all.Findings = lint.Sort(append(all.Findings, lint.Check(all.objects, config)...), config.Ignore)
	if err := all.print(cmd.OutOrStdout(), l.output); err != nil {
		return fmt.Errorf("writing findings: %w", err)
	}
	if lint.Fails(all.Findings) {
		return findings{fmt.Sprintf("%d finding%s", len(all.Findings), plural(len(all.Findings)))}
	}
	return nil
}

func (l *lintFlags) files(args []string, in io.Reader, all *linted) error {
	texts, err := readManifests(args, in)
	if err != nil {
		return err
	}
	for _, t := range texts {
		found, wrong := lint.Parse(t.name, t.text, l.namespace)
		all.objects, all.Findings = append(all.objects, found...), append(all.Findings, wrong...)
	}
	all.Files = len(texts)
	return nil
}

func (l *lintFlags) cluster(cmd *cobra.Command, all *linted, config *lint.Config) error {
	from := live.Config{Kubeconfig: l.kubeconfig, Context: l.context}
	if cmd.Flags().Changed("namespace") {
		from.Namespace = l.namespace
	}
	c, err := live.Read(cmd.Context(), from)
	if err != nil {
		return err
	}
	if config.KubernetesMinor == 0 {
		config.KubernetesMinor = c.Minor
	}
	all.objects, all.Findings, all.LeftOut = c.Objects, c.Findings, c.LeftOut
	for _, what := range c.LeftOut {
		fmt.Fprintln(cmd.ErrOrStderr(), "meshctl: left out:", what)
	}
	return nil
}

// config is what the flags say; a code that there is not is an error, because
// nobody would notice.
func (l *lintFlags) config() (lint.Config, error) {
	c := lint.Config{Injected: l.injected, Opaque: policy.DefaultOpaque()}
	if l.output != "text" && l.output != "json" && l.output != "sarif" {
		return c, usagef("--output %q: want text, json or sarif", l.output)
	}
	known := map[lint.Code]bool{}
	for _, r := range lint.Rules() {
		known[r.Code] = true
	}
	for _, code := range l.ignore {
		code := lint.Code(strings.ToUpper(strings.TrimSpace(code)))
		if !known[code] {
			return c, usagef("--ignore %q: there is no such code", code)
		}
		c.Ignore = append(c.Ignore, code)
	}
	if l.kubernetes != "" {
		minor, ok := strings.CutPrefix(strings.TrimPrefix(l.kubernetes, "v"), "1.")
		minor, _, _ = strings.Cut(minor, ".")
		n, err := strconv.Atoi(minor)
		if err != nil || !ok || n < 0 {
			return c, usagef("--kubernetes-version %q: want a version such as 1.28", l.kubernetes)
		}
		c.KubernetesMinor = n
	}
	return c, nil
}

func (all linted) print(w io.Writer, output string) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	switch output {
	case "json":
		if all.Findings == nil {
			all.Findings = []lint.Finding{}
		}
		return encoder.Encode(all)
	case "sarif":
		return encoder.Encode(lint.ToSarif(all.Findings, version))
	}
	for _, f := range all.Findings {
		if _, err := fmt.Fprintln(w, f); err != nil {
			return err
		}
	}
	n := len(all.Findings)
	from := fmt.Sprintf("%d file%s", all.Files, plural(all.Files))
	if all.Files == 0 {
		from = "the cluster"
	}
	_, err := fmt.Fprintf(w, "%d object%s in %s, %d finding%s\n", all.Objects, plural(all.Objects), from, n, plural(n))
	return err
}
