package bench

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
	"github.com/meshctl/meshctl/integration/servers"
)

const inboundPort = 4143

// uid is the user of all contenders: one of this run alone.
var uid = 20000 + os.Getpid()%10000

// contender is something between the load and the backend.
type contender struct {
	name  string
	needs []string // files or programs that have to be there
	// command gives the program's arguments; dir is a folder of its own.
	command func(b *bench, dir string, l load) []string
}

// reference is whom the others are compared with.
const reference = "haproxy"

func contenders() []contender {
	return []contender{
		{name: "direct"},
		{name: reference, needs: []string{"haproxy"}, command: haproxy},
		{name: "nginx", needs: []string{"nginx", "/usr/lib/nginx/modules/ngx_stream_module.so"}, command: nginx},
		{name: "meshctl", command: meshctl},
	}
}

// present are the contenders whose programs are installed.
func present(t *testing.T, l load) []contender {
	var all []contender
next:
	for _, c := range contenders() {
		if c.command == nil && l.proxyOnly {
			continue
		}
		for _, need := range c.needs {
			_, err := exec.LookPath(need)
			if strings.HasPrefix(need, "/") {
				_, err = os.Stat(need)
			}
			if err != nil {
				fmt.Printf("%s: %s is left out: %v\n", t.Name(), c.name, err)
				continue next
			}
		}
		all = append(all, c)
	}
	return all
}

func meshctl(b *bench, _ string, l load) []string {
	opaque := ""
	if l.layer == opaqueLayer {
		opaque = strconv.Itoa(int(l.port))
	}
	return []string{b.program, "proxy", "--inbound-listen", "[::]:4143", "--outbound-listen", "", "--admin-listen", "127.0.0.1:4191",
		"--log-level", "warn", "--opaque-ports", opaque}
}

func haproxy(_ *bench, dir string, l load) []string {
	mode, words := "http", ""
	switch l.layer {
	case opaqueLayer:
		mode = "tcp"
	case http2Layer:
		words = "proto h2"
	}
	conf := write(dir, "haproxy.cfg", fmt.Sprintf(`global
 nbthread 2
 maxconn 9000
 maxpipes 400
 tune.h2.max-concurrent-streams 1024
defaults
 mode %s
 timeout connect 5s
 timeout client 1h
 timeout server 1h
 option splice-auto
 backlog 65535
listen in
 bind :%d %s
 server s %s %s
`, mode, inboundPort, words, backend(l), words))
	return []string{"haproxy", "-db", "-f", conf}
}

func nginx(_ *bench, dir string, l load) []string {
	section := fmt.Sprintf(`stream { access_log off; proxy_timeout 1h;
 server { listen %d reuseport backlog=65535; tcp_nodelay on; proxy_pass %s; } }`, inboundPort, backend(l))
	if l.layer != opaqueLayer {
		version, pass := "", `proxy_pass http://b; proxy_http_version 1.1; proxy_set_header Connection "";`
		if l.layer == http2Layer {
			version, pass = "http2", "grpc_pass grpc://b;"
		}
		section = fmt.Sprintf(`http { access_log off; keepalive_requests 1000000000; http2_max_concurrent_streams 1024;
 client_body_temp_path %[1]s/a; proxy_temp_path %[1]s/b; fastcgi_temp_path %[1]s/c; uwsgi_temp_path %[1]s/d; scgi_temp_path %[1]s/e;
 upstream b { server %[2]s; keepalive 512; keepalive_requests 1000000000; }
 server { listen %[3]d %[4]s reuseport backlog=65535; location / { %[5]s } } }`, dir, backend(l), inboundPort, version, pass)
	}
	conf := write(dir, "nginx.conf", fmt.Sprintf(`load_module /usr/lib/nginx/modules/ngx_stream_module.so;
daemon off; worker_processes 2; pid %[1]s/pid; worker_rlimit_nofile 20000;
events { worker_connections 9000; }
%[2]s
`, dir, section))
	return []string{"nginx", "-e", dir + "/err", "-c", conf}
}

// backend is where a load's server listens.
func backend(l load) netip.AddrPort { return netip.AddrPortFrom(lab.PodV4, l.port) }

func write(dir, name, text string) string {
	file := filepath.Join(dir, name)
	_ = os.WriteFile(file, []byte(text), 0o644) // a program without its file tells
	return file
}

// running is a contender that takes connections.
type running struct {
	*servers.Process // nil: direct
	ready            time.Duration
}

// start writes the rules, or none for direct, and starts a contender.
func (b *bench) start(t *testing.T, l load, c contender) *running {
	t.Helper()
	b.rules(t, c.command != nil)
	if c.command == nil {
		return &running{}
	}
	dir := t.TempDir()
	for _, d := range []string{filepath.Dir(dir), dir} {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	id := strconv.Itoa(uid)
	// A shell weighs the session, setpriv gives up root, a shell notes the time, and
	// each gives way to the next. (The clock is the machine's: a step of it between
	// two such readings spoils one start-up of many.)
	began := filepath.Join(dir, "began")
	args := append([]string{"-c", `[ -z "$0" ] || echo "$0" >/proc/self/autogroup; exec setpriv "$@"`, os.Getenv("BENCHNICE"),
		"--reuid=" + id, "--regid=" + id, "--clear-groups", "--",
		"bash", "-c", `printf %s "$EPOCHREALTIME" >"$0"; exec "$@"`, began}, c.command(b, dir, l)...)
	r := &running{Process: servers.Start(t, b.net.Pod.Command(context.Background(), "bash", args...))}
	r.ready = r.await(t, began)
	return r
}

// rules redirects what comes into the pod, or does not.
func (b *bench) rules(t *testing.T, on bool) {
	t.Helper()
	args := []string{"redirect", "--netns", b.net.Pod.Path(), "--rules-only", "--proxy-uid", strconv.Itoa(uid), "--log-level", "error"}
	if !on {
		args = []string{"redirect", "remove", "--netns", b.net.Pod.Path()}
	}
	cmd := exec.Command(b.program, args...)
	cmd.Env = lab.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("meshctl %v: %v\n%s", args, err, out)
	}
}

// await returns how long after its exec the contender listened.
func (r *running) await(t *testing.T, began string) time.Duration {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); time.Now().Before(deadline); time.Sleep(200 * time.Microsecond) {
		text, err := os.ReadFile(began) // before it is there, the process is in another namespace
		if err != nil || len(text) == 0 || !r.listens() {
			continue
		}
		now := time.Now()
		seconds, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			t.Fatal(err)
		}
		return now.Sub(time.UnixMicro(int64(seconds * 1e6)))
	}
	t.Fatalf("it does not listen:\n%s", r.Log())
	return 0
}

// listens looks into the process's own list of sockets (proc_pid_net(5)).
func (r *running) listens() bool {
	for _, name := range []string{"tcp", "tcp6"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", r.PID(), name))
		if err == nil && strings.Contains(string(b), fmt.Sprintf(":%04X 00000000", inboundPort)) {
			return true
		}
	}
	return false
}

// stop ends the contender before the next one begins.
func (r *running) stop(t *testing.T) {
	if r.Process == nil {
		return
	}
	all := r.pids()
	for _, pid := range all { // workers may outlive a master that is killed
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			t.Error(err)
		}
	}
	<-r.Gone()
	for _, pid := range all[1:] {
		for deadline := time.Now().Add(10 * time.Second); alive(pid); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("process %d does not end", pid)
			}
		}
	}
}

// alive reports whether a process still has its sockets: a zombie has none.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(b), ") Z ")
}

// pids are the contender's process and its children.
func (r *running) pids() []int {
	all := []int{r.PID()}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", r.PID(), r.PID()))
	if err != nil {
		return all
	}
	for _, word := range strings.Fields(string(b)) {
		if pid, err := strconv.Atoi(word); err == nil {
			all = append(all, pid)
		}
	}
	return all
}

func (r *running) cpu(t *testing.T) time.Duration {
	var sum time.Duration
	if r.Process != nil {
		for _, pid := range r.pids() {
			sum += built.CPU(t, pid)
		}
	}
	return sum
}

// footprint is the memory in KiB and the descriptors of the contender.
func (r *running) footprint(t *testing.T) (kib, descriptors float64) {
	for _, pid := range r.pids() {
		kib += float64(built.RSS(t, pid))
		descriptors += float64(built.Descriptors(t, pid))
	}
	return kib, descriptors
}

// prefer gives a process's session the weight that BENCHNICE says. With the
// kernel's autogroups a session's nice value is what counts among sessions
// (sched(7)), so on a machine with other users this steadies the figures.
func prefer(pid int) {
	if v := os.Getenv("BENCHNICE"); v != "" {
		_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", pid), []byte(v), 0o644) // best effort
	}
}
