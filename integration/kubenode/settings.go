package kubenode

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/netip"
	"os"
	"testing"
	"time"
)

const kubeconfig = `apiVersion: v1
kind: Config
clusters: [{name: node, cluster: {server: "https://127.0.0.1:6443", certificate-authority: %q}}]
users: [{name: user, user: {token: %q}}]
contexts: [{name: node, context: {cluster: node, user: user}}]
current-context: node
`

const network = `{"cniVersion": "0.4.0", "name": "node", "plugins": [{"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
 "ipam": {"type": "host-local", "dataDir": "/run/cni", "ranges": [[{"subnet": "` + pods + `"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
`

// Limits of memory under pressure may only be lowered by who has CAP_SYS_RESOURCE;
// containerd is told to leave them alone.
const containerd = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
oom_score = 0
[grpc]
  address = "` + socket + `"
[plugins."io.containerd.internal.v1.opt"]
  path = "/run/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + pause + `"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = %q
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
`

const kubelet = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix://` + socket + `
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
cgroupsPerQOS: true
enforceNodeAllocatable: []
cgroupRoot: /%s
address: 0.0.0.0
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
clusterDNS: ["` + DNS + `"]
clusterDomain: cluster.local
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: "10Mi", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%"}
oomScoreAdj: 0
syncFrequency: 5s
resolvConf: ""
`

// settings writes the files that the programs are started with. Names are tokens,
// which is the shortest way to have users of different rights.
func (n *Node) settings(t testing.TB) {
	t.Helper()
	n.Write(t, "network/10-bridge.conflist", network)
	n.Write(t, "containerd.toml", fmt.Sprintf(containerd, n.file("network")))
	n.Write(t, "kubelet.yaml", fmt.Sprintf(kubelet, n.cgroup))
	tokens := ""
	for i, user := range []struct{ file, name, group string }{
		{"admin", "admin", "system:masters"}, {"manager", "system:kube-controller-manager", "system:masters"},
		{"scheduler", "system:kube-scheduler", ""}, {"kubelet", "system:node:" + Name, "system:nodes"},
	} {
		token := rand.Text()
		if user.file == "admin" {
			n.token = token
		}
		tokens += fmt.Sprintf("%s,%s,%d,%s\n", token, user.name, i, user.group)
		n.Write(t, user.file+".conf", fmt.Sprintf(kubeconfig, n.file("ca.crt"), token))
	}
	n.Write(t, "tokens.csv", tokens)
	n.certificates(t)
}

func (n *Node) certificates(t testing.TB) {
	t.Helper()
	key := func(name string) *ecdsa.PrivateKey {
		k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := x509.MarshalECPrivateKey(k)
		if err != nil {
			t.Fatal(err)
		}
		n.Write(t, name, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})))
		return k
	}
	key("sa.key")
	sign := func(name string, c, by *x509.Certificate, k, with *ecdsa.PrivateKey) {
		c.NotBefore, c.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(24*time.Hour)
		c.BasicConstraintsValid = true
		der, err := x509.CreateCertificate(rand.Reader, c, by, k.Public(), with)
		if err != nil {
			t.Fatal(err)
		}
		n.Write(t, name, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})))
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "kubenode"}, IsCA: true, KeyUsage: x509.KeyUsageCertSign}
	signer := key("ca.key")
	sign("ca.crt", ca, ca, signer, signer)
	api := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "kube-apiserver"}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, DNSNames: []string{"localhost", "kubernetes.default.svc"},
	}
	for _, a := range []string{"127.0.0.1", Addr, "10.96.0.1"} {
		api.IPAddresses = append(api.IPAddresses, netip.MustParseAddr(a).AsSlice())
	}
	sign("api.crt", api, ca, key("api.key"), signer)
}

// Write writes a file below Dir and returns its whole name.
func (n *Node) Write(t testing.TB, name, text string) string {
	t.Helper()
	return write(t, n.file(name), text)
}

func write(t testing.TB, name, text string) string {
	t.Helper()
	if err := os.MkdirAll(dirOf(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
