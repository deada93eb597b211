package kubenode

import (
	"path/filepath"
	"strings"
	"testing"
)

func dirOf(name string) string { return filepath.Dir(name) }

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// KubectlArgs are a command line of kubectl as the administrator.
func (n *Node) KubectlArgs(args ...string) []string {
	return append([]string{filepath.Join(n.bin, "kubectl"), "--kubeconfig=" + n.Kubeconfig()}, args...)
}

// Kubeconfig is the administrator's.
func (n *Node) Kubeconfig() string { return n.file("admin.conf") }

// TryKubectl runs kubectl and returns its standard output.
func (n *Node) TryKubectl(args ...string) (string, error) {
	line := n.KubectlArgs(args...)
	return n.Try("", line[0], line[1:]...)
}

// Kubectl runs kubectl, which has to succeed.
func (n *Node) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := n.TryKubectl(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TryApply has the cluster take objects.
func (n *Node) TryApply(objects string, args ...string) (string, error) {
	line := n.KubectlArgs(append([]string{"apply", "-f", "-"}, args...)...)
	return n.Try(objects, line[0], line[1:]...)
}

// Apply has the cluster take objects, which it has to.
func (n *Node) Apply(t testing.TB, objects string, args ...string) {
	t.Helper()
	if out, err := n.TryApply(objects, args...); err != nil {
		t.Fatal(err, out)
	}
}
