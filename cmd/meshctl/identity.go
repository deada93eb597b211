package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/proxy/identity/authority"
)

// notForProduction is said wherever the small CA is used.
const notForProduction = "not for production: its key lies unencrypted in a file and nothing is ever revoked"

func newIdentityCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "identity",
		Short: "Make certificates to try mTLS with, and look into those there are",
		Long: `A small CA for laptops, demos and tests, and a look at certificates from
wherever they are: what one says, and why a proxy would refuse it.

The CA is not for production: its key lies unencrypted in a file and nothing is
ever revoked. There, have cert-manager or SPIRE issue certificates.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newIdentityInitCommand())    // identity.go
	cmd.AddCommand(newIdentityIssueCommand())   // identity_issue.go
	cmd.AddCommand(newIdentityInspectCommand()) // identity_inspect.go
	cmd.AddCommand(newIdentityVerifyCommand())  // identity_verify.go
	return cmd
}

func newIdentityInitCommand() *cobra.Command {
	var dir, domain string
	var life time.Duration
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Make a CA: ca.crt and ca.key",
		Long: `Make a CA (ECDSA P-256) for "meshctl identity issue". Files that are there are
never written over. It is not for production: its key lies unencrypted in a file
and nothing is ever revoked.`,
		Example: "  meshctl identity init --dir ca",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return initAuthority(cmd.OutOrStdout(), cmd.ErrOrStderr(), dir, domain, life)
		},
	}
	f := cmd.Flags()
	f.StringVar(&dir, "dir", "", "where to write ca.crt and ca.key (mode 0600); required")
	f.StringVar(&domain, "trust-domain", "cluster.local", "the end of all names that it issues")
	f.DurationVar(&life, "life", 24*time.Hour, "how long it is valid")
	return cmd
}

func initAuthority(out, warn io.Writer, dir, domain string, life time.Duration) error {
	if dir == "" {
		return usagef("--dir: where to write the CA?")
	}
	ca, err := authority.New(domain, life, time.Now())
	if err != nil {
		return usagef("%w", err)
	}
	if err := ca.Write(dir); err != nil {
		return inputErrorIfThere(err)
	}
	fmt.Fprintf(out, "%s/ca.crt, ca.key: a CA for %s until %s\n", dir, domain, ca.Certificate().NotAfter.UTC().Format(time.RFC3339))
	fmt.Fprintf(warn, "meshctl: warning: the CA is %s\n", notForProduction)
	return nil
}

// inputErrorIfThere makes files that are there or missing the user's matter.
func inputErrorIfThere(err error) error {
	if errors.Is(err, fs.ErrExist) || errors.Is(err, fs.ErrNotExist) {
		return inputError{err}
	}
	return err
}
