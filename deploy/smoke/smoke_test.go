// Package smoke plays deploy/podman/pod.yaml with podman: the image that .ci/image
// builds, an init container that writes the rules, the proxy, an application. It
// shows that the image and the pod work at all; podman is more lenient than
// Kubernetes with capabilities, so it proves nothing about those.
//
//	namespace peer               the pod's own namespace, made by podman
//	  10.233.0.1  <-- veth -->   10.233.0.2   rules, proxy, app on 8080
package smoke

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
)

const (
	manifest = "../podman/pod.yaml"
	peerAddr = "10.233.0.1"
	podAddr  = "10.233.0.2"
)

// engine is a podman whose storage, settings and containers are this test's own.
type engine struct {
	dir string
	env []string
}

// settings keep to what works in most places: no user session, no systemd, no
// registry, no network of podman's own. Limits are named because not everybody
// may raise them.
const settings = `[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
infra_image = "localhost/pause:latest"
tmp_dir = "%[1]s/tmp"
`

// storage copies layers: it works on every file system, and the images are small.
const storage = `[storage]
driver = "vfs"
graphroot = "%[1]s/graph"
runroot = "%[1]s/run"
`

func newEngine(t *testing.T) *engine {
	t.Helper()
	for _, program := range []string{"podman", "runc", "setcap", "getcap", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("MESHCTL_NETNS") == "require" {
				t.Fatalf("%v (make deps installs it)", err)
			}
			t.Skipf("%v (make deps installs it)", err)
		}
	}
	dir, err := os.MkdirTemp("", "meshctl-smoke-")
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{dir: dir, env: append(lab.Environ(), "CONTAINERS_CONF="+dir+"/containers.conf", "CONTAINERS_STORAGE_CONF="+dir+"/storage.conf")}
	e.write(t, "containers.conf", fmt.Sprintf(settings, dir))
	e.write(t, "storage.conf", fmt.Sprintf(storage, dir))
	e.write(t, "cwd/.keep", "") // podman takes a folder named like an image for a build context
	e.removeAtEnd(t)
	return e
}

func (e *engine) write(t *testing.T, name, text string) {
	t.Helper()
	name = filepath.Join(e.dir, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// removeAtEnd leaves a shell that removes all containers of this storage when the
// test ends, also when it is killed: they are no children of the test.
func (e *engine) removeAtEnd(t *testing.T) {
	t.Helper()
	sweeper := exec.Command("/bin/sh", "-c", `read x; cd /; podman pod rm -a -f -t 0 >/dev/null 2>&1; podman rm -a -f -t 0 >/dev/null 2>&1; rm -rf "$1"`, "sweep", e.dir)
	sweeper.Env = e.env
	sweeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	in, err := sweeper.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sweeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := sweeper.Wait(); err != nil {
			t.Errorf("removing the pod: %v", err)
		}
		if _, err := os.Stat(e.dir); err == nil {
			t.Errorf("%s is still there", e.dir)
		}
	})
}

// run runs a program with the engine's settings and returns its standard output.
func (e *engine) run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env, cmd.Dir = e.env, dir
	var errs strings.Builder
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, errs.String(), out)
	}
	return strings.TrimSpace(string(out))
}

func (e *engine) podman(t *testing.T, args ...string) string {
	t.Helper()
	return e.run(t, filepath.Join(e.dir, "cwd"), "podman", args...)
}

// images builds the product's image and two of the test's own application.
func (e *engine) images(t *testing.T) {
	t.Helper()
	program, remove, err := built.Compile()
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	e.run(t, "../..", ".ci/image", "localhost/meshctl:latest", program)
	app := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Join(e.dir, "context/app"), "./app")
	app.Env = append(lab.Environ(), "CGO_ENABLED=0")
	if out, err := app.CombinedOutput(); err != nil {
		t.Fatalf("building the application: %v\n%s", err, out)
	}
	for name, entry := range map[string]string{"app": `["/app"]`, "pause": `["/app", "pause"]`} {
		e.write(t, "context/"+name+".file", "FROM scratch\nCOPY app /app\nENTRYPOINT "+entry+"\n")
		e.podman(t, "build", "-q", "--pull=never", "--network=host", "--isolation=chroot", "-f", e.dir+"/context/"+name+".file", "-t", "localhost/"+name+":latest", e.dir+"/context")
	}
}

// play starts the pod and joins it to the peer.
func (e *engine) play(t *testing.T, peer *lab.Namespace) {
	t.Helper()
	file, err := filepath.Abs(manifest)
	if err != nil {
		t.Fatal(err)
	}
	e.podman(t, "kube", "play", "--network", "none", file)
	pid := e.pid(t, "web-app")
	ns := "--net=/proc/" + pid + "/ns/net"
	peer.Run(t, "ip", "link", "add", "smoke0", "type", "veth", "peer", "name", "eth0", "netns", pid)
	peer.Run(t, "ip", "addr", "add", peerAddr+"/24", "dev", "smoke0")
	peer.Run(t, "ip", "link", "set", "smoke0", "up")
	e.run(t, "/", "nsenter", ns, "ip", "addr", "add", podAddr+"/24", "dev", "eth0")
	e.run(t, "/", "nsenter", ns, "ip", "link", "set", "eth0", "up")
}

func (e *engine) pid(t *testing.T, container string) string {
	t.Helper()
	pid := e.podman(t, "inspect", "-f", "{{.State.Pid}}", container)
	if pid == "" || pid == "0" {
		t.Fatalf("%s does not run: %s", container, e.podman(t, "logs", container))
	}
	return pid
}

// get fetches a URL from the peer until it answers; a pod takes its time.
func get(t *testing.T, peer *lab.Namespace, url string) string {
	t.Helper()
	return strings.TrimSpace(peer.Run(t, "curl", "-sS", "--fail", "--max-time", "10", "--retry", "20", "--retry-delay", "1", "--retry-connrefused", "--retry-all-errors", url))
}

func TestThePodmanPodIsMeshed(t *testing.T) {
	peer := lab.Pair(t).Peer
	e := newEngine(t)
	e.images(t)
	e.play(t, peer)

	if got := get(t, peer, "http://"+podAddr+":8080/"); got != "the application answers" {
		t.Errorf("from the application: %q", got)
	}
	listener := peer.Listen(t, netip.MustParseAddrPort(peerAddr+":9000"))
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "the world answers") }), ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(listener) }()
	defer server.Close()
	if got := get(t, peer, "http://"+podAddr+":8080/fetch?url=http://"+peerAddr+":9000/"); got != "the world answers" {
		t.Errorf("from the world: %q", got)
	}

	metrics := get(t, peer, "http://"+podAddr+":4191/metrics")
	for direction, target := range map[string]string{"inbound": podAddr + ":8080", "outbound": peerAddr + ":9000"} {
		if !counted(metrics, direction, target) {
			t.Errorf("no %s request to %s was counted: it went around the proxy", direction, target)
		}
	}
	e.unprivileged(t, "web-linkerd-proxy")
}

func counted(metrics, direction, target string) bool {
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "request_total{") && strings.Contains(line, `direction="`+direction+`"`) && strings.Contains(line, `target_addr="`+target+`"`) {
			return true
		}
	}
	return false
}

// unprivileged holds a container's process to what the pod says of it.
func (e *engine) unprivileged(t *testing.T, container string) {
	t.Helper()
	status, err := os.ReadFile("/proc/" + e.pid(t, container) + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"Uid:\t2102\t2102\t2102\t2102", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(string(status), want) {
			t.Errorf("%s is not %q:\n%s", container, want, status)
		}
	}
}
