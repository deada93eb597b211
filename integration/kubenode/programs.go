package kubenode

import (
	"fmt"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/child"
)

// daemonize starts a program of the node in all of its namespaces. It ends with them.
func (n *Node) daemonize(t testing.TB, name, program string, args ...string) {
	t.Helper()
	target := "--target=" + strconv.Itoa(n.holder.PID())
	n.daemon[name] = child.Start(t, n.log(name), nil, "nsenter",
		append([]string{target, "--mount", "--net", "--pid", "--", program}, args...)...)
	t.Cleanup(func() {
		n.holder.Kill()
		n.daemon[name].Kill()
		if t.Failed() && !n.ready {
			t.Logf("%s:\n%s", name, n.tail(name))
		}
	})
}

func (n *Node) file(name string) string { return filepath.Join(n.Dir, name) }

func (n *Node) healthy(t testing.TB, name, url string) {
	t.Helper()
	n.until(t, name+" is healthy", 2*time.Minute, func() error {
		_, err := n.Try("", "curl", "-sfk", "--max-time", "5", url)
		return err
	})
}

func (n *Node) controlPlane(t testing.TB) {
	t.Helper()
	n.daemonize(t, "etcd", filepath.Join(n.bin, "etcd"), "--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379", "--listen-peer-urls=http://127.0.0.1:2380")
	n.healthy(t, "etcd", "http://127.0.0.1:2379/health")
	n.daemonize(t, "kube-apiserver", filepath.Join(n.bin, "kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0",
		"--secure-port=6443", "--advertise-address="+Addr, "--tls-cert-file="+n.file("api.crt"), "--tls-private-key-file="+n.file("api.key"),
		"--token-auth-file="+n.file("tokens.csv"), "--authorization-mode=Node,RBAC", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+n.file("sa.key"), "--service-account-signing-key-file="+n.file("sa.key"), "--service-cluster-ip-range="+services,
		"--allow-privileged=true", "--kubelet-preferred-address-types=InternalIP",
		"--kubelet-client-certificate="+n.file("api.crt"), "--kubelet-client-key="+n.file("api.key"))
	n.healthy(t, "kube-apiserver", "https://127.0.0.1:6443/readyz")
	n.daemonize(t, "kube-controller-manager", filepath.Join(n.bin, "kube-controller-manager"), "--kubeconfig="+n.file("manager.conf"), "--leader-elect=false",
		"--service-account-private-key-file="+n.file("sa.key"), "--root-ca-file="+n.file("ca.crt"), "--use-service-account-credentials=false",
		"--allocate-node-cidrs=false", "--bind-address=127.0.0.1")
	n.daemonize(t, "kube-scheduler", filepath.Join(n.bin, "kube-scheduler"), "--kubeconfig="+n.file("scheduler.conf"), "--leader-elect=false", "--bind-address=127.0.0.1")
}

func (n *Node) node(t testing.TB, images []string) {
	t.Helper()
	n.daemonize(t, "containerd", "containerd", "-c", n.file("containerd.toml"))
	n.until(t, "containerd answers", time.Minute, func() error {
		_, err := n.Ctr("version")
		return err
	})
	for _, file := range images {
		if _, err := n.Ctr("images", "import", file); err != nil {
			t.Fatal(err)
		}
	}
	n.daemonize(t, "events", "ctr", "-a", socket, "-n", "k8s.io", "events")
	n.daemonize(t, "kubelet", filepath.Join(n.bin, "kubelet"), "--config="+n.file("kubelet.yaml"), "--root-dir=/var/lib/kubelet", "--cert-dir=/var/lib/kubelet/pki",
		"--hostname-override="+Name, "--node-ip="+Addr, "--kubeconfig="+n.file("kubelet.conf"), "--v=2")
	n.healthy(t, "kubelet", "http://127.0.0.1:10248/healthz")
	n.daemonize(t, "kube-proxy", filepath.Join(n.bin, "kube-proxy"), "--kubeconfig="+n.file("manager.conf"), "--proxy-mode=nftables", "--cluster-cidr="+pods,
		"--hostname-override="+Name, "--conntrack-max-per-core=0", "--conntrack-tcp-timeout-established=0", "--conntrack-tcp-timeout-close-wait=0")
	n.healthy(t, "kube-proxy", "http://127.0.0.1:10256/healthz")
}

const socket = "/run/containerd/containerd.sock"

// Ctr runs containerd's client.
func (n *Node) Ctr(args ...string) (string, error) {
	return n.Try("", "ctr", append([]string{"-a", socket, "-n", "k8s.io"}, args...)...)
}

// Versions are those of the programs, one a line.
func (n *Node) Versions() []string {
	var out []string
	for _, p := range [][]string{
		{filepath.Join(n.bin, "kube-apiserver"), "--version"}, {filepath.Join(n.bin, "kubelet"), "--version"}, {filepath.Join(n.bin, "etcd"), "--version"},
		{"containerd", "--version"}, {"runc", "--version"}, {"nft", "--version"}, {"uname", "-sr"},
	} {
		text, err := n.Try("", p[0], p[1:]...)
		if err != nil {
			text = err.Error()
		}
		out = append(out, fmt.Sprintf("%-16s %s", filepath.Base(p[0]), firstLine(text)))
	}
	return out
}
