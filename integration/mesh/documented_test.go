package mesh

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

// The three commands of docs/mesh.md, for web and then for db, make a mesh. Only the
// namespace and the user are others: those of this test.
func TestTheDocumentedCommandsMakeAMesh(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/mesh.md")
	must(t, err)
	_, block, _ := strings.Cut(string(page), "```\n")
	block, _, _ = strings.Cut(block, "```")
	commands := strings.Split(strings.TrimSpace(block), "\n")
	if len(commands) != 3 {
		t.Fatalf("docs/mesh.md has %d commands at first: %q", len(commands), commands)
	}
	w := &world{Net: lab.Pair(t), resources: open(t)}
	dir := open(t)
	must(t, os.Symlink(program, filepath.Join(dir, "meshctl")))
	must(t, os.Mkdir(filepath.Join(dir, "objects"), 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "objects", "pods.yaml"), []byte(podObjects("")), 0o644))
	app := startApplication(t, w.Peer.Listen(t, at(5000)))
	shell := func(text string) *exec.Cmd {
		cmd := exec.Command("/bin/sh", "-ec", text)
		cmd.Dir, cmd.Env = dir, append(lab.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		return cmd
	}
	if out, err := shell(commands[0]).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", commands[0], err, out)
	}
	for name, ns := range map[string]*lab.Namespace{"web": w.Pod, "db": w.Peer} {
		as := func(command string) string {
			user := strconv.Itoa(built.UID())
			return strings.NewReplacer("--netns web", "--netns "+ns.Path()+" --proxy-uid "+user, "-o 2102", "-o "+user, "web", name).Replace(command)
		}
		if out, err := shell(as(commands[1])).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", as(commands[1]), err, out)
		}
		proxy := servers.Start(t, shell("exec "+as(commands[2])))
		await(t, name+"'s proxy is ready", func() bool {
			conn, err := ns.Dial(built.App, netip.AddrPort{}, netip.MustParseAddrPort("127.0.0.1:4191"), time.Second)
			return err == nil && w.attempt(t, conn, "GET /ready HTTP/1.1\r\nHost: admin\r\nConnection: close\r\n\r\n") == "200"
		})
		if t.Failed() {
			t.Fatal(proxy.Log())
		}
	}
	wire := listen(t, w.Pod)
	if !w.asks(t, 5000) || app.accepted.Load() != 1 {
		t.Errorf("no answer; the application has seen %d connections", app.accepted.Load())
	}
	wire.settle(t)
	if wire.size() == 0 || wire.has(secret) {
		t.Errorf("%d bytes on the wire; the application's among them: %v", wire.size(), wire.has(secret))
	}
}
