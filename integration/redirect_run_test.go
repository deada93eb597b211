package integration

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/meshctl/meshctl/integration/lab"
)

// ran is one finished run of a program.
type ran struct {
	code     int
	out, err string
}

// run runs a program of the test's namespace to its end, for 20 s at most.
func runIn(t *testing.T, ns *lab.Namespace, env []string, name string, args ...string) ran {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := ns.Command(ctx, name, args...)
	cmd.Env = append(cmd.Env, env...)
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		t.Fatalf("%s %q: %v", name, args, err)
	}
	return ran{cmd.ProcessState.ExitCode(), out.String(), stderr.String()}
}

// rulesOnly writes the rules of the pod.
func rulesOnly(t *testing.T, pod *lab.Namespace, args ...string) ran {
	t.Helper()
	return runIn(t, pod, nil, meshctl, append([]string{"redirect", "--rules-only"}, args...)...)
}

// nft is what netfilter holds by nft(8), without counters.
func nft(t *testing.T, ns *lab.Namespace) string {
	t.Helper()
	return ns.Run(t, "nft", "-s", "list", "ruleset")
}

func TestRedirectExitsByWhatWentWrong(t *testing.T) {
	n := lab.Pair(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string // a pattern of the one line on stderr
	}{
		"an unknown flag":              {[]string{"--no-such-flag"}, 64, "no-such-flag"},
		"an argument":                  {[]string{"pod"}, 64, `"pod".*after --`},
		"an empty namespace":           {[]string{"--netns", ""}, 64, "empty"},
		"a file as namespace":          {[]string{"--netns", file}, 64, "a file"},
		"a name that is not there":     {[]string{"--netns", "no-such-name"}, 64, "no-such-name"},
		"another kind of namespace":    {[]string{"--netns", "/proc/self/ns/mnt"}, 64, "another kind"},
		"a port list with a letter":    {[]string{"--skip-outbound-ports", "3306,44x4"}, 64, `--skip-outbound-ports.*item 2.*44x4`},
		"an empty item":                {[]string{"--skip-outbound-ports", "80,,443"}, 64, "item 2"},
		"a reversed range":             {[]string{"--skip-inbound-ports", "10-5"}, 64, "--skip-inbound-ports.*10-5"},
		"a subnet that is none":        {[]string{"--skip-subnets", "10.0.0.0/8,10.0.0/8"}, 64, "--skip-subnets.*item 2.*10.0.0/8"},
		"root as the proxy":            {[]string{"--proxy-uid", "0"}, 64, "proxy-uid"},
		"a skip list with our port":    {[]string{"--skip-inbound-ports", "4000-5000"}, 64, "skip-inbound-ports"},
		"one port for both directions": {[]string{"--inbound-port", "4140"}, 64, "outbound-port"},
		"an unknown backend":           {[]string{"--backend", "ebpf"}, 64, "ebpf"},
		"an unknown form":              {[]string{"--dry-run", "-o", "yaml"}, 64, "yaml"},
		"a group that is no number":    {[]string{"--proxy-gid", "wheel"}, 64, "wheel"},
		"IPv6 of another kind":         {[]string{"--ipv6", "maybe"}, 64, "maybe"},
	} {
		t.Run(name, func(t *testing.T) {
			got := rulesOnly(t, n.Pod, c.args...)
			if got.code != c.code || strings.Count(got.err, "\n") != 1 || !regexp.MustCompile(c.says).MatchString(got.err) {
				t.Errorf("exit code %d, want %d; said %q, want one line with %q", got.code, c.code, got.err, c.says)
			}
		})
	}
	if left := nft(t, n.Pod); left != "" {
		t.Errorf("written all the same:\n%s", left)
	}
}

func TestEveryFlagIsAlsoAVariable(t *testing.T) {
	n := lab.Pair(t)
	got := runIn(t, n.Pod, []string{"MESHCTL_SKIP_OUTBOUND_PORTS=3306", "MESHCTL_DRY_RUN=true", "MESHCTL_OUTPUT=nft"}, meshctl, "redirect")
	if got.code != 0 || !strings.Contains(got.out, "elements = { 3306 }") {
		t.Errorf("exit code %d: %s%s", got.code, got.out, got.err)
	}
	got = runIn(t, n.Pod, []string{"MESHCTL_SKIP_OUTBOUND_PORTS=x", "MESHCTL_DRY_RUN=true"}, meshctl, "redirect", "--skip-outbound-ports", "25")
	if got.code != 0 {
		t.Errorf("the command line does not go before the variable: %s", got.err)
	}
	got = runIn(t, n.Pod, []string{"MESHCTL_WAIT=soon"}, meshctl, "redirect", "--dry-run")
	if got.code != 64 || !strings.Contains(got.err, "MESHCTL_WAIT") {
		t.Errorf("exit code %d: %s", got.code, got.err)
	}
}

// The same flags under linkerd2-proxy-init's names give the same rules.
func TestTheBinaryStandsInForProxyInit(t *testing.T) {
	theirs, ours := lab.Pair(t), lab.Pair(t)
	link := filepath.Join(t.TempDir(), "proxy-init")
	if err := os.Symlink(meshctl, link); err != nil {
		t.Fatal(err)
	}
	got := runIn(t, theirs.Pod, nil, link, "-p", "4143", "-o", "4140", "-u", "2102", "-w", "--ipv6=true",
		"--inbound-ports-to-ignore", "4190,4191,4567-4568", "--outbound-ports-to-ignore", "25,3306",
		"--subnets-to-ignore", "10.0.0.0/8", "--timeout-close-wait-secs", "3600", "--log-format", "plain", "--log-level", "info")
	if got.code != 0 {
		t.Fatalf("as proxy-init: exit code %d: %s", got.code, got.err)
	}
	if got := rulesOnly(t, ours.Pod, "--skip-inbound-ports", "4190,4191,4567-4568", "--skip-outbound-ports", "25,3306", "--skip-subnets", "10.0.0.0/8"); got.code != 0 {
		t.Fatal(got.err)
	}
	if diff := cmp.Diff(nft(t, ours.Pod), nft(t, theirs.Pod)); diff != "" {
		t.Errorf("-ours +theirs:\n%s", diff)
	}
	if seconds := theirs.Pod.Run(t, "sysctl", "-n", "net.netfilter.nf_conntrack_tcp_timeout_close_wait"); seconds != "3600\n" {
		t.Errorf("close-wait time %q", seconds)
	}
	for _, list := range []string{"+80", "80:90", "+25,80"} {
		if got := runIn(t, theirs.Pod, nil, link, "--outbound-ports-to-ignore", list); got.code != 64 {
			t.Errorf("%q is not of proxy-init's grammar: exit code %d", list, got.code)
		}
	}
	for _, mode := range []string{"nft", "legacy"} {
		if got := runIn(t, theirs.Pod, nil, link, "--iptables-mode", mode); got.code != 0 || !strings.Contains(got.err, "backend=iptables-"+mode) {
			t.Errorf("mode %s: exit code %d: %s", mode, got.code, got.err)
		}
	}
	if got := runIn(t, theirs.Pod, nil, link, "--simulate"); got.code != 0 || got.out == "" {
		t.Errorf("simulating: exit code %d, %q", got.code, got.out)
	}
}

func TestADryRunIsTheSameEachTimeAndWritesNothing(t *testing.T) {
	n := lab.Pair(t)
	for _, form := range []string{"text", "nft", "iptables", "json"} {
		args := []string{"redirect", "--dry-run", "-o", form, "--skip-subnets", "fd00::/8,10.0.0.0/8", "--skip-outbound-ports", "9,7,8"}
		first := runIn(t, n.Pod, nil, meshctl, args...)
		if first.code != 0 || first.out == "" {
			t.Errorf("%s: exit code %d: %s", form, first.code, first.err)
		}
		if diff := cmp.Diff(first, runIn(t, n.Pod, nil, meshctl, args...), cmp.AllowUnexported(ran{})); diff != "" {
			t.Errorf("%s: two runs differ:\n%s", form, diff)
		}
	}
	if left := nft(t, n.Pod); left != "" {
		t.Errorf("a dry run wrote:\n%s", left)
	}
}

// An init container may be run again in a pod that lives (and then with other
// flags, or by another backend).
func TestRunningAgainLeavesTheSameRules(t *testing.T) {
	n := lab.Pair(t)
	lists := []string{"--skip-outbound-ports", "3306", "--skip-inbound-ports", "9100"}
	var first string
	for i := range 3 {
		if got := rulesOnly(t, n.Pod, lists...); got.code != 0 {
			t.Fatalf("run %d: %s", i+1, got.err)
		}
		if i == 0 {
			first = nft(t, n.Pod)
		}
		if diff := cmp.Diff(first, nft(t, n.Pod)); diff != "" {
			t.Errorf("run %d changed the rules:\n%s", i+1, diff)
		}
	}
	if got := rulesOnly(t, n.Pod, append(lists, "--backend", "iptables-legacy")...); got.code != 0 {
		t.Fatal(got.err)
	}
	if left := nft(t, n.Pod); left != "" {
		t.Errorf("a second copy is left in nftables:\n%s", left)
	}
	if got := rulesOnly(t, n.Pod, "--skip-outbound-ports", "25"); got.code != 0 || !strings.Contains(got.err, "backend=iptables-legacy") {
		t.Errorf("does not follow the backend that holds the rules: %s", got.err)
	}
	if text := n.Pod.Run(t, "iptables-legacy-save"); strings.Contains(text, "3306") || !strings.Contains(text, "--dports 25") {
		t.Errorf("the old list is still there:\n%s", text)
	}
}

func TestStatusTellsDriftAndRemoveEndsIt(t *testing.T) {
	n := lab.Pair(t)
	status := func(args ...string) ran {
		return runIn(t, n.Pod, nil, meshctl, append([]string{"redirect", "status"}, args...)...)
	}
	if got := status(); got.code != 2 {
		t.Errorf("without rules: exit code %d: %s", got.code, got.out)
	}
	rulesOnly(t, n.Pod, "--skip-outbound-ports", "3306")
	if got := status("--skip-outbound-ports", "3306"); got.code != 0 || !strings.Contains(got.out, "redirect-outbound") {
		t.Errorf("in place: exit code %d: %s", got.code, got.out)
	}
	if got := status("--skip-outbound-ports", "3306", "-o", "json"); got.code != 0 || !strings.Contains(got.out, `"drift":[]`) {
		t.Errorf("as JSON: exit code %d: %s", got.code, got.out)
	}
	if got := status("--skip-outbound-ports", "3307"); got.code != 2 || !strings.Contains(got.out, "set skip_outbound_ports differs") {
		t.Errorf("other flags: exit code %d: %s", got.code, got.out)
	}
	for _, want := range []string{"rules removed\n", "there are no rules of ours\n"} {
		if got := runIn(t, n.Pod, nil, meshctl, "redirect", "remove"); got.code != 0 || got.out != want {
			t.Errorf("remove: exit code %d: %q", got.code, got.out)
		}
	}
}

func TestVerifyExitsByWhatItFound(t *testing.T) {
	n := lab.Pair(t)
	if got := runIn(t, n.Pod, nil, meshctl, "redirect", "verify"); got.code != 2 || strings.Count(got.out, "FAILED") != 4 {
		t.Errorf("without rules: exit code %d:\n%s", got.code, got.out)
	}
	rulesOnly(t, n.Pod)
	if got := runIn(t, n.Pod, nil, meshctl, "redirect", "verify"); got.code != 0 || strings.Count(got.out, "ok ") != 10 {
		t.Errorf("with rules: exit code %d:\n%s", got.code, got.out)
	}
}
