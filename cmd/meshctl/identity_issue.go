package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/proxy/identity"
	"github.com/meshctl/meshctl/proxy/identity/authority"
)

// issueFlags are the flags of `meshctl identity issue` as they are written.
type issueFlags struct {
	ca, out                   string
	names                     []string
	serviceAccount, namespace string
	controlPlane, domain      string
	spiffe                    string
	life                      time.Duration
	alsoTrust                 []string
}

func newIdentityIssueCommand() *cobra.Command {
	i := &issueFlags{}
	cmd := &cobra.Command{
		Use:   "issue",
		Short: "Issue a certificate, for meshctl proxy --identity-dir",
		Long: `Issue a certificate and its key (ECDSA P-256) by the CA of "meshctl identity init",
and write them with the trust anchors as tls.crt, tls.key and ca.crt, all three
at once: a proxy that follows the directory sees the old or the new.

The name is Linkerd's, from --service-account and --namespace, or that of --name,
or a SPIFFE ID; a certificate may have a DNS name and a SPIFFE ID. To replace a CA,
issue with --also-trust NEW/ca.crt first, everywhere, then by the new CA with
--also-trust OLD/ca.crt, and then without.

Not for production: the key of the CA lies unencrypted in a file.`,
		Example: `  meshctl identity issue --ca ca --service-account web --namespace default --out web
  meshctl identity issue --ca ca --spiffe-id spiffe://cluster.local/ns/default/sa/web --out web`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return i.run(cmd.OutOrStdout(), cmd.ErrOrStderr()) },
	}
	f := cmd.Flags()
	f.StringVar(&i.ca, "ca", "", "directory of the CA; required")
	f.StringVar(&i.out, "out", "", "directory to write tls.crt, tls.key (mode 0600) and ca.crt into; required")
	f.StringSliceVar(&i.names, "name", nil, "DNS name to issue for; may be repeated, the first is the identity")
	f.StringVar(&i.serviceAccount, "service-account", "", "service account to issue for, by the name that Linkerd gives it")
	f.StringVar(&i.namespace, "namespace", "default", "namespace of --service-account")
	f.StringVar(&i.controlPlane, "control-plane-namespace", "linkerd", "namespace of the control plane, which is part of Linkerd's names")
	f.StringVar(&i.domain, "trust-domain", "cluster.local", "trust domain of --service-account")
	f.StringVar(&i.spiffe, "spiffe-id", "", "SPIFFE ID to issue for, as spiffe://cluster.local/ns/default/sa/web")
	f.DurationVar(&i.life, "life", time.Hour, "how long it is valid, though not longer than its CA")
	f.StringSliceVar(&i.alsoTrust, "also-trust", nil, "files with further trust anchors to write into ca.crt")
	return cmd
}

// request checks the names, which decide who may call whom.
func (i *issueFlags) request() (authority.Request, error) {
	r := authority.Request{Names: i.names, SPIFFE: i.spiffe, Life: i.life}
	switch {
	case i.ca == "":
		return r, usagef("--ca: which CA is to issue it? (meshctl identity init makes one)")
	case i.out == "":
		return r, usagef("--out: where to write the certificate?")
	case i.serviceAccount != "" && len(i.names) > 0:
		return r, usagef("--name and --service-account: choose one")
	case i.serviceAccount == "" && len(i.names) == 0 && i.spiffe == "":
		return r, usagef("for whom? --service-account, --name or --spiffe-id says it")
	case i.life <= 0:
		return r, usagef("--life is not positive: %s", i.life)
	}
	if i.serviceAccount != "" {
		r.Names = []string{identity.Name(i.serviceAccount, i.namespace, i.controlPlane, i.domain)}
	}
	for _, name := range r.Names {
		if !identity.IsName(name) {
			return r, usagef("%q is no name for a workload: letters, digits, hyphens and dots, no wildcard", name)
		}
	}
	return r, nil
}

func (i *issueFlags) run(out, warn io.Writer) error {
	r, err := i.request()
	if err != nil {
		return err
	}
	ca, err := authority.Load(i.ca)
	if err != nil {
		return inputError{err}
	}
	now := time.Now()
	leaf, err := ca.Issue(r, now)
	if err != nil {
		return usagef("%w", err)
	}
	for _, file := range i.alsoTrust {
		text, err := os.ReadFile(file)
		if err != nil {
			return inputError{fmt.Errorf("--also-trust: %w", err)}
		}
		more, err := identity.ParseAnchors(text, now)
		if err != nil {
			return inputError{fmt.Errorf("--also-trust %s: %w", file, err)}
		}
		leaf.Anchors = append(leaf.Anchors, more...)
	}
	if err := leaf.Write(i.out); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return inputError{err}
		}
		return err
	}
	names := strings.Join(r.Names, ", ")
	if r.SPIFFE != "" {
		names = strings.TrimPrefix(names+", "+r.SPIFFE, ", ")
	}
	fmt.Fprintf(out, "%s/tls.crt, tls.key, ca.crt: %s until %s\n", i.out, names, leaf.Certificate.NotAfter.UTC().Format(time.RFC3339))
	if leaf.Certificate.NotAfter.Before(now.Add(i.life - time.Minute)) {
		fmt.Fprintln(warn, "meshctl: warning: it ends with its CA, earlier than --life says")
	}
	fmt.Fprintf(warn, "meshctl: warning: the CA is %s\n", notForProduction)
	return nil
}
