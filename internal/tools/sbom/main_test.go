package main

import (
	"bytes"
	"debug/buildinfo"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// The test's own binary is a Go program with modules in it.
func own(t *testing.T) string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

func TestTheBillNamesEveryModuleOfTheProgram(t *testing.T) {
	var b bytes.Buffer
	if err := write(&b, own(t), "v1.2.3"); err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(&b, cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	built, err := buildinfo.ReadFile(own(t))
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]bool{}
	for _, c := range *bom.Components {
		have[c.Name] = true
	}
	if len(have) != len(built.Deps)+1 || !have["stdlib"] || !have["github.com/CycloneDX/cyclonedx-go"] {
		t.Errorf("%d components of %d modules: %v", len(have), len(built.Deps), have)
	}
	if main := bom.Metadata.Component; main.Version != "v1.2.3" || len((*main.Hashes)[0].Value) != 64 {
		t.Errorf("%+v", main)
	}
	if !regexp.MustCompile(`^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`).MatchString(bom.SerialNumber) {
		t.Errorf("serial number %q", bom.SerialNumber)
	}
	if bom.SpecVersion != cdx.SpecVersion1_6 || bom.Metadata.Timestamp != "" {
		t.Errorf("version %v, timestamp %q", bom.SpecVersion, bom.Metadata.Timestamp)
	}
}

func TestTheSameProgramHasTheSameBill(t *testing.T) {
	var a, b bytes.Buffer
	if err := write(&a, own(t), "v1"); err != nil {
		t.Fatal(err)
	}
	if err := write(&b, own(t), "v1"); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() {
		t.Error("two texts for one program")
	}
}

func TestWhatIsNoGoProgramIsRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(file, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := write(&bytes.Buffer{}, file, "v1"); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}
