// Sbom writes what a Go program is made of, as CycloneDX 1.6 in JSON, from the build
// information that the Go linker leaves in the program itself: not what go.mod asks
// for, but what is in it. The same program gives the same text.
package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: sbom PROGRAM VERSION >sbom.json")
		os.Exit(64)
	}
	if err := write(os.Stdout, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// write reads a program and writes its bill of materials.
func write(w io.Writer, program, version string) error {
	built, err := buildinfo.ReadFile(program)
	if err != nil {
		return fmt.Errorf("reading how %s was built: %w", program, err)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	encoder := cdx.NewBOMEncoder(w, cdx.BOMFileFormatJSON)
	encoder.SetPretty(true)
	return encoder.EncodeVersion(bill(built, sha256.Sum256(text), version), cdx.SpecVersion1_6)
}

// bill names the program, every module in it, and the Go standard library.
func bill(built *debug.BuildInfo, sum [sha256.Size]byte, version string) *cdx.BOM {
	main := cdx.Component{
		BOMRef: "program", Type: cdx.ComponentTypeApplication, Name: built.Main.Path, Version: version,
		PackageURL: purl(built.Main.Path, version),
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum[:])}},
	}
	stdlib := cdx.Component{
		BOMRef: "stdlib", Type: cdx.ComponentTypeLibrary, Name: "stdlib", Version: strings.TrimPrefix(built.GoVersion, "go"),
		PackageURL: purl("stdlib", strings.TrimPrefix(built.GoVersion, "go")), Description: "The Go standard library",
	}
	components := []cdx.Component{stdlib}
	refs := []string{stdlib.BOMRef}
	for _, m := range built.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c := cdx.Component{BOMRef: purl(m.Path, m.Version), Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl(m.Path, m.Version)}
		if m.Sum != "" { // a hash over the module's files, as go.sum has it; no hash of one file
			c.Properties = &[]cdx.Property{{Name: "go:sum", Value: m.Sum}}
		}
		components, refs = append(components, c), append(refs, c.BOMRef)
	}
	bom := cdx.NewBOM()
	bom.SerialNumber = serial(sum)
	bom.Metadata = &cdx.Metadata{Component: &main, Properties: settings(built)}
	bom.Components = &components
	bom.Dependencies = &[]cdx.Dependency{{Ref: main.BOMRef, Dependencies: &refs}}
	return bom
}

// settings are those of the build that change what comes out.
func settings(built *debug.BuildInfo) *[]cdx.Property {
	var out []cdx.Property
	for _, s := range built.Settings {
		switch s.Key {
		case "GOOS", "GOARCH", "GOAMD64", "CGO_ENABLED", "-trimpath", "-tags":
			out = append(out, cdx.Property{Name: "go:build:" + s.Key, Value: s.Value})
		}
	}
	return &out
}

// purl is a package URL of type golang.
func purl(path, version string) string {
	return "pkg:golang/" + path + "@" + strings.ReplaceAll(version, "+", "%2B")
}

// serial is a UUID of version 8 (RFC 9562), made of the program's hash, so that the
// same program has the same one.
func serial(sum [sha256.Size]byte) string {
	id := sum[:16]
	id[6] = id[6]&0x0f | 0x80
	id[8] = id[8]&0x3f | 0x80
	return fmt.Sprintf("urn:uuid:%x-%x-%x-%x-%x", id[0:4], id[4:6], id[6:8], id[8:10], id[10:16])
}
