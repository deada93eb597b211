package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

// The init container of a pod runs as an ordinary user whose bounding set holds
// CAP_NET_ADMIN, and the sidecar runs the same file with an empty one. Both work with
// file capabilities that are permitted only (`=p`), as in the image.
func TestTheImageServesAsInitContainerAndAsSidecar(t *testing.T) {
	n := lab.Pair(t)
	program := withCapabilities(t)

	out, err := asContainer(n.Pod, "+net_admin,+net_raw", program, "redirect", "--rules-only", "--backend", "auto")
	if err != nil {
		t.Fatalf("as init container: %v\n%s", err, out)
	}
	if rules := n.Pod.Run(t, "nft", "list", "ruleset"); !strings.Contains(rules, "table inet meshctl") {
		t.Errorf("the rules are not there:\n%s", rules)
	}
	if out, err := asContainer(n.Pod, "-all", program, "--version"); err != nil {
		t.Errorf("as sidecar: %v\n%s", err, out)
	}
	out, err = asContainer(n.Pod, "-all", program, "redirect", "--rules-only")
	if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 77 || !strings.Contains(out, "CAP_NET_ADMIN") {
		t.Errorf("without the capability: %v, %s; want exit code 77 and its name", err, out)
	}
}

// withCapabilities copies the program and gives it the image's capabilities.
func withCapabilities(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile(meshctl)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o711); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "meshctl")
	if err := os.WriteFile(file, raw, 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("setcap", "cap_net_admin,cap_net_raw=p", file).CombinedOutput(); err != nil {
		t.Fatalf("setcap: %v\n%s", err, out)
	}
	return file
}

// asContainer runs a program as a container runtime would run it as user 2102: no
// capabilities, none inheritable, and only those of bounds to be had by exec.
func asContainer(ns *lab.Namespace, bounds string, program ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	bounding := "-all"
	if bounds != "-all" {
		bounding += "," + bounds
	}
	args := []string{"--reuid=2102", "--regid=2102", "--clear-groups", "--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=" + bounding, "--"}
	out, err := ns.Command(ctx, "setpriv", append(args, program...)...).CombinedOutput()
	return string(out), err
}
