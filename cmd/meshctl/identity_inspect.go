package main

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/proxy/identity"
)

func newIdentityInspectCommand() *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "inspect FILE|DIR",
		Short: "Print what certificates say",
		Long: `Print what the certificates of a PEM file say, or those of a directory with tls.crt
and ca.crt: the names by which others know their owner, the issuer, how long they
are valid, the key. It judges nothing: "meshctl identity verify" does. A private
key is not read.`,
		Example: "  meshctl identity inspect web\n  meshctl identity inspect -o json /var/run/identity/tls.crt",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return inspect(cmd.OutOrStdout(), args[0], output, time.Now())
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "text or json")
	return cmd
}

// certificateText is what a certificate says, as -o json prints it.
type certificateText struct {
	File      string    `json:"file"`
	Position  int       `json:"position"` // in the file, from 1
	CA        bool      `json:"ca"`
	Identity  string    `json:"identity,omitempty"` // by which a peer would know it
	DNS       []string  `json:"dns_names,omitempty"`
	URIs      []string  `json:"uris,omitempty"`
	Subject   string    `json:"subject,omitempty"`
	Issuer    string    `json:"issuer"`
	NotBefore time.Time `json:"not_before"`
	NotAfter  time.Time `json:"not_after"`
	Key       string    `json:"key"`
	Usage     []string  `json:"extended_key_usage,omitempty"`
	Serial    string    `json:"serial"`
	SHA256    string    `json:"sha256"`
}

func inspect(w io.Writer, path, output string, now time.Time) error {
	if output != "text" && output != "json" {
		return usagef("--output %q: want text or json", output)
	}
	files, err := certificateFiles(path)
	if err != nil {
		return inputError{err}
	}
	var all []certificateText
	for _, f := range files {
		chain, err := readChain(f)
		if err != nil {
			return err
		}
		for i, c := range chain {
			all = append(all, describe(f, i+1, c))
		}
	}
	if output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(all)
	}
	for i, c := range all {
		if i > 0 {
			fmt.Fprintln(w)
		}
		c.print(w, now)
	}
	return nil
}

// certificateFiles are the files to look into: path, or those in it.
func certificateFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	for _, name := range []string{identity.CertificateFile, identity.AnchorsFile} {
		if file := filepath.Join(path, name); fileExists(file) {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has neither %s nor %s", path, identity.CertificateFile, identity.AnchorsFile)
	}
	return files, nil
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// readChain reads the certificates of a file.
func readChain(file string) ([]*x509.Certificate, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, inputError{err}
	}
	chain, err := identity.ParseChain(text)
	if err != nil {
		return nil, inputError{fmt.Errorf("%s: %w", file, err)}
	}
	return chain, nil
}

func describe(file string, position int, c *x509.Certificate) certificateText {
	sum := sha256.Sum256(c.Raw)
	t := certificateText{
		File: file, Position: position, CA: c.IsCA, DNS: c.DNSNames, Subject: c.Subject.String(), Issuer: c.Issuer.String(),
		NotBefore: c.NotBefore.UTC(), NotAfter: c.NotAfter.UTC(), Key: keyText(c), Serial: c.SerialNumber.Text(16), SHA256: hex.EncodeToString(sum[:]),
	}
	if !c.IsCA {
		t.Identity, _ = identity.Of(c) // none: then it is left out
	}
	for _, u := range c.URIs {
		t.URIs = append(t.URIs, u.String())
	}
	for _, u := range c.ExtKeyUsage {
		t.Usage = append(t.Usage, usageText(u))
	}
	return t
}

func usageText(u x509.ExtKeyUsage) string {
	switch u {
	case x509.ExtKeyUsageServerAuth:
		return "server auth"
	case x509.ExtKeyUsageClientAuth:
		return "client auth"
	case x509.ExtKeyUsageAny:
		return "any"
	}
	return fmt.Sprintf("other (%d)", u)
}

func keyText(c *x509.Certificate) string {
	switch key := c.PublicKey.(type) {
	case *ecdsa.PublicKey:
		return "ECDSA " + key.Params().Name
	case *rsa.PublicKey:
		return fmt.Sprintf("RSA %d bits", key.N.BitLen())
	case ed25519.PublicKey:
		return "Ed25519"
	}
	return c.PublicKeyAlgorithm.String()
}

// print writes one certificate for people.
func (t certificateText) print(w io.Writer, now time.Time) {
	kind := "certificate"
	if t.CA {
		kind = "CA certificate"
	}
	fmt.Fprintf(w, "%s: %s %d\n", t.File, kind, t.Position)
	for _, row := range []struct{ name, value string }{
		{"identity", t.Identity},
		{"DNS names", strings.Join(t.DNS, ", ")},
		{"URIs", strings.Join(t.URIs, ", ")},
		{"subject", t.Subject},
		{"issuer", t.Issuer},
		{"valid", fmt.Sprintf("%s to %s (%s)", t.NotBefore.Format(time.RFC3339), t.NotAfter.Format(time.RFC3339), lifeText(t, now))},
		{"key", t.Key},
		{"usage", strings.Join(t.Usage, ", ")},
		{"sha256", t.SHA256},
	} {
		if row.value != "" {
			fmt.Fprintf(w, "  %-10s %s\n", row.name, printable(row.value))
		}
	}
}

// printable keeps what somebody put into a name from moving the cursor.
func printable(s string) string {
	quoted := fmt.Sprintf("%q", s)
	return quoted[1 : len(quoted)-1]
}

func lifeText(t certificateText, now time.Time) string {
	switch {
	case now.Before(t.NotBefore):
		return "not yet valid"
	case now.After(t.NotAfter):
		return "expired " + now.Sub(t.NotAfter).Round(time.Second).String() + " ago"
	}
	left := t.NotAfter.Sub(now)
	return fmt.Sprintf("%s left, %d %%", left.Round(time.Second), int(100*left/t.NotAfter.Sub(t.NotBefore)))
}
