package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/meshctl/meshctl/proxy"
	"github.com/meshctl/meshctl/proxy/identity"
)

// Variables that others set for the same: Linkerd's injector, and whoever follows
// SPIFFE's text on the Workload API (4). They count where neither a flag nor
// its own variable says where the identity is.
const (
	linkerdIdentityDir = "LINKERD2_PROXY_IDENTITY_DIR"
	spiffeSocket       = "SPIFFE_ENDPOINT_SOCKET"
)

func registerIdentity(f *pflag.FlagSet, c *proxy.Config) {
	f.StringVar(&c.IdentityDir, "identity-dir", "", "directory with the own certificate for mTLS: tls.crt, tls.key and ca.crt, as cert-manager mounts them; read again when they change ("+linkerdIdentityDir+")")
	f.StringVar(&c.SPIFFESocket, "spiffe-socket", "", "have the certificate from the SPIFFE Workload API at this Unix socket instead: a path, or unix:///run/spire/agent.sock ("+spiffeSocket+")")
}

func registerMesh(f *pflag.FlagSet, c *proxy.Config) {
	f.BoolFunc("mesh-wrap-tls", "an application's own TLS goes inside of the mesh's (true), so that both proxies know who is at the other end; false: it goes to the endpoint as it is", func(v string) error {
		wrap, err := strconv.ParseBool(v)
		c.LeaveTLS = !wrap
		return err
	})
}

// identityOf completes the two fields from the environment, and refuses what
// cannot be before anything is opened.
func identityOf(c *proxy.Config) error {
	if c.IdentityDir == "" && c.SPIFFESocket == "" {
		c.IdentityDir, c.SPIFFESocket = os.Getenv(linkerdIdentityDir), os.Getenv(spiffeSocket)
		if c.IdentityDir != "" && c.SPIFFESocket != "" {
			return usagef("the environment says both %s and %s: choose one with --identity-dir or --spiffe-socket", linkerdIdentityDir, spiffeSocket)
		}
	}
	if c.IdentityDir != "" && c.SPIFFESocket != "" {
		return usagef("--identity-dir and --spiffe-socket: there is one identity: choose one of them")
	}
	if c.SPIFFESocket != "" {
		if _, err := identity.Address(c.SPIFFESocket); err != nil {
			return usagef("--spiffe-socket: %w", err)
		}
	}
	return nil
}

// isIdentityFile reports whether err is about a file of the identity.
func isIdentityFile(err error) bool {
	_, bad := errors.AsType[*identity.FileError](err)
	return bad
}

// identityError is a file of the identity that cannot be used; exit code 65.
type identityError struct{ error }

func (e identityError) Unwrap() error { return e.error }
func (e identityError) ExitCode() int { return exitInput }
func (e identityError) Hint() string {
	if errors.Is(e.error, fs.ErrPermission) {
		return fmt.Sprintf("the proxy runs as user %d, group %d: that user has to be able to read it", os.Getuid(), os.Getgid())
	}
	return `"meshctl identity verify" tells the same without starting anything`
}
