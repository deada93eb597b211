package main

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/proxy/identity"
)

// peerFlags are the flags of `meshctl identity verify` as they are written.
type peerFlags struct{ dir, peer, name string }

func newIdentityVerifyCommand() *cobra.Command {
	v := &peerFlags{}
	cmd := &cobra.Command{
		Use:   "verify",
		Short: "Tell whether a proxy would take a certificate, and if not, why",
		Long: `Tell whether "meshctl proxy --identity-dir" would take the files of a directory: that
nobody else can read the key, that it belongs to the certificate, and that peers
with the same anchors would accept it.

With --peer, tell also whether it would accept the peer that has that certificate
(PEM, the leaf first), as server and as client; with --name, only under that
name. If something would be refused, the exit code is 2.`,
		Example: "  meshctl identity verify --identity-dir web\n  meshctl identity verify --identity-dir web --peer db/tls.crt --name db.default.serviceaccount.identity.linkerd.cluster.local",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return v.run(cmd.OutOrStdout(), time.Now()) },
	}
	f := cmd.Flags()
	f.StringVar(&v.dir, "identity-dir", "", "directory with tls.crt, tls.key and ca.crt; required")
	f.StringVar(&v.peer, "peer", "", "file with the certificate of a peer and its intermediates")
	f.StringVar(&v.name, "name", "", "DNS name or SPIFFE ID that the peer has to have")
	return cmd
}

func (v *peerFlags) run(w io.Writer, now time.Time) error {
	switch {
	case v.dir == "":
		return usagef("--identity-dir: which identity?")
	case v.name != "" && v.peer == "":
		return usagef("--name is what the peer is expected to be: --peer has its certificate")
	}
	own, err := identity.Read(v.dir, now)
	if err != nil {
		fmt.Fprintf(w, "refused  %v\n", err)
		return findings{"the proxy would not take this identity"}
	}
	fmt.Fprintf(w, "taken    %s: %s, until %s, %d trust anchors\n", v.dir, own.ID(), own.NotAfter().UTC().Format(time.RFC3339), len(own.Anchors()))
	if v.peer == "" {
		return nil
	}
	chain, err := readChain(v.peer)
	if err != nil {
		return err
	}
	refused := false
	for _, role := range []struct {
		name   string
		server bool
	}{{"server", true}, {"client", false}} {
		id, err := own.VerifyPeer(chain, v.name, role.server, now)
		if err != nil {
			refused = true
			fmt.Fprintf(w, "refused  as %s: %v\n", role.name, err)
			continue
		}
		fmt.Fprintf(w, "accepted as %s: %s\n", role.name, id)
	}
	if refused {
		return findings{"the peer would be refused"}
	}
	return nil
}
