package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheCapabilitiesAreThoseOfSetcap(t *testing.T) {
	if os.Geteuid() != 0 {
		if os.Getenv("MESHCTL_NETNS") == "require" {
			t.Fatal("needs root")
		}
		t.Skip("needs root: only root may set file capabilities")
	}
	file := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(file, []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := set(file); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("getcap", file).CombinedOutput()
	if err != nil {
		t.Fatalf("getcap: %v\n%s", err, out)
	}
	if got := strings.TrimSpace(string(out)); got != file+" cap_net_admin,cap_net_raw=p" {
		t.Errorf("getcap says %q", got)
	}
}

func TestAFileThatIsNotThereIsNamed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "none")
	if err := set(file); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("%v", err)
	}
}
