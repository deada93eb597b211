package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

// ask runs a command line in this process, without the test's own settings:
// MESHCTL_NETNS=require would be a namespace.
func ask(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	withoutSettings(t)
	return execute(args...)
}

func withoutSettings(t *testing.T) {
	t.Helper()
	for _, item := range os.Environ() {
		if name, value, _ := strings.Cut(item, "="); strings.HasPrefix(name, "MESHCTL_") {
			t.Setenv(name, value) // brings it back after the test
			if err := os.Unsetenv(name); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func execute(args ...string) (out string, err error) {
	var b bytes.Buffer
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(&b)
	root.SetErr(io.Discard)
	err = root.Execute()
	return b.String(), err
}

func TestGoldenExplain(t *testing.T) {
	var b strings.Builder
	for _, args := range [][]string{
		{"10.0.0.7:80"},
		{"[fd00::7]:443", "--outbound"},
		{"10.0.0.7:3306"},
		{"10.0.0.7:3306", "--skip-outbound-ports", "+3300-3310"},
		{"10.0.0.7:3306", "--opaque-ports", ""},
		{"10.0.0.7:3306", "--opaque-ports", "", "--early-dial-after", "0"},
		{"10.0.0.7:13306"},
		{"10.0.0.7:13306", "--opaque-ports", "+13306"},
		{"10.0.0.7:13306", "--early-dial-after", "0", "--detect-timeout", "2500ms"},
		{"10.0.0.7:27017"},
		{"10.0.0.7:4567"},
		{"10.0.0.7:80", "--uid", "2102"},
		{"10.0.0.7:80", "--uid", "1000", "--only-outbound-ports", "443"},
		{"10.0.0.7:80", "--skip-outbound-subnets", "10.0.0.0/8"},
		{"[fd00::7]:80", "--ipv6=off"},
		{"127.0.0.1:80"},
		{"[::1]:4140"},
		{"127.0.0.1:4191"},
		{"10.0.0.2:8080", "--inbound"},
		{"[fd00::2]:8080", "--inbound", "--from", "[fd00::9]:50000", "--skip-inbound-subnets", "fd00::/64"},
		{"10.0.0.2:8080", "--inbound", "--skip-inbound-subnets", "192.168.0.0/16"},
		{"10.0.0.2:4191", "--inbound"},
		{"10.0.0.2:9990", "--inbound", "--admin-listen", "[::]:9990"},
		{"10.0.0.2:4140", "--inbound"},
		{"[::ffff:10.0.0.2]:25", "--inbound", "--inbound-port", "15006"},
	} {
		out, err := ask(t, append([]string{"explain"}, args...)...)
		if err != nil {
			t.Errorf("%q: %v", args, err)
		}
		fmt.Fprintf(&b, "$ meshctl explain %s\n%s\n", quoted(args), out)
		for line := range strings.Lines(out) {
			if len(line) > 101 {
				t.Errorf("%q: more than 100 columns: %s", args, line)
			}
		}
	}
	golden(t, "explain.txt", b.String())
}

func quoted(args []string) string {
	for i, a := range args {
		if a == "" {
			args[i] = "''"
		}
	}
	return strings.Join(args, " ")
}

func TestExplainTakesSettingsOfTheEnvironment(t *testing.T) {
	withoutSettings(t)
	t.Setenv("MESHCTL_SKIP_OUTBOUND_PORTS", "3306")
	out, err := execute("explain", "10.0.0.7:3306")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"rule     skip-outbound-ports ", "rules    by the environment (MESHCTL_...)"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

func TestExplainInJSONSaysTheSame(t *testing.T) {
	out, err := ask(t, "explain", "-o", "json", "10.0.0.7:3306")
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Verdict, Rule, Known, Rules string
		To                          uint16
		Proxy                       struct{ Action string }
		Assumed                     []string
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if got.Verdict != "redirect" || got.To != 4140 || got.Rule != "redirect-outbound" || got.Proxy.Action != "opaque" ||
		!strings.HasPrefix(got.Known, "MySQL") || len(got.Assumed) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestExplainRefusesWhatItCannotAnswer(t *testing.T) {
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"10.0.0.7"}, `"10.0.0.7" is no address and port (as 10.0.0.7:3306 or [fd00::7]:3306)`},
		{[]string{"10.0.0.7:0"}, `"10.0.0.7:0" is no address and port`},
		{[]string{"fd00::7:80"}, `is no address and port`},
		{[]string{"db:3306"}, `is no address and port`},
		{[]string{}, "accepts 1 arg"},
		{[]string{"--inbound", "--outbound", "10.0.0.7:80"}, "either --inbound or --outbound"},
		{[]string{"--from", "10.0.0.9", "10.0.0.7:80"}, "--from is for --inbound"},
		{[]string{"--inbound", "--from", "fd00::9", "10.0.0.7:80"}, "one address family"},
		{[]string{"--inbound", "--from", "here", "10.0.0.7:80"}, `--from "here" is no address (as 10.0.0.9 or fd00::9)`},
		{[]string{"--inbound", "127.0.0.1:80"}, "nothing comes in to 127.0.0.1"},
		{[]string{"-o", "yaml", "10.0.0.7:80"}, "want text or json"},
		{[]string{"--skip-outbound-ports", "44x4", "10.0.0.7:80"}, `item 1 "44x4"`},
		{[]string{"--opaque-ports", "x", "10.0.0.7:80"}, "--opaque-ports"},
		{[]string{"--detect-timeout", "0", "10.0.0.7:80"}, "--detect-timeout must be above 0"},
		{[]string{"--admin-listen", "x", "10.0.0.7:80"}, "--admin-listen"},
		{[]string{"--netns", "pod", "--proxy-uid", "5", "10.0.0.7:80"}, "either --netns, whose rules are read from the kernel, or --proxy-uid"},
		{[]string{"--netns", "", "10.0.0.7:80"}, "the reference is empty"},
		{[]string{"--netns", "no-such-namespace", "10.0.0.7:80"}, "no such name"},
	} {
		out, err := ask(t, append([]string{"explain"}, c.args...)...)
		if err == nil || codeOf(err) != exitUsage || !strings.Contains(complaint(err), c.says) {
			t.Errorf("%q: %v, exit code %d; want %d and %q", c.args, err, codeOf(err), exitUsage, c.says)
		}
		if out != "" {
			t.Errorf("%q: it answered: %s", c.args, out)
		}
	}
}

// explainIn asks about a namespace and takes its path out of the answer.
func explainIn(t *testing.T, ns *lab.Namespace, args ...string) string {
	t.Helper()
	out, err := ask(t, append([]string{"explain", "--netns", ns.Path()}, args...)...)
	if err != nil {
		t.Fatalf("%q: %v", args, err)
	}
	return strings.ReplaceAll(out, ns.Path(), "POD")
}

func TestExplainReadsTheNamespace(t *testing.T) {
	needsNamespaces(t)
	pod := lab.Pair(t).Pod
	remote := netip.AddrPortFrom(lab.PeerV4, 5000).String()
	holds := func(text string, want ...string) {
		t.Helper()
		for _, w := range want {
			if !strings.Contains(text, w) {
				t.Errorf("no %q in\n%s", w, text)
			}
		}
	}
	holds(explainIn(t, pod, remote), "why      there are no rules of meshctl", "rules    none in namespace POD")

	program := compiled(t)
	pod.Run(t, program, "redirect", "--rules-only", "--skip-outbound-ports", "5000")
	holds(explainIn(t, pod, remote), "rule     skip-outbound-ports", "rules    in namespace POD, by nftables, plan ")
	for _, own := range []netip.Addr{lab.PodV4, lab.PodV6} {
		holds(explainIn(t, pod, netip.AddrPortFrom(own, 80).String()), "rule     loopback", ", through lo")
		holds(explainIn(t, pod, "--inbound", netip.AddrPortFrom(own, 80).String()), "rule     redirect-inbound")
	}
	holds(explainIn(t, pod, "--inbound", "10.9.9.9:80"), "the namespace does not have it")
	holds(explainIn(t, pod, "10.9.9.9:3306"), "opaque by default")
	// Asked inside of it, nobody has to name it.
	holds(pod.Run(t, program, "explain", remote), "rules    in the current namespace, by nftables")

	proxy := pod.Command(t.Context(), program, "redirect", "--", "--opaque-ports", "5000", "--early-dial-after", "0", "--detect-timeout", "3s")
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = proxy.Process.Signal(os.Interrupt)
		_ = proxy.Wait()
	})
	text := ""
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(text, "runs there") && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
		text = explainIn(t, pod, remote)
	}
	holds(text, "port 5000 is opaque in the proxy that runs there", "rule     redirect-outbound")
	holds(explainIn(t, pod, "10.9.9.9:3306"), "waits    3 s, each time; then it is passed on as TCP")
	holds(explainIn(t, pod, "--inbound", netip.AddrPortFrom(lab.PodV6, 4140).String()), "proxy    refuses it")

	pod.Run(t, "nft", "insert", "rule", "inet", "meshctl", "outbound", "tcp", "dport", "80", "return")
	if _, err := ask(t, "explain", "--netns", pod.Path(), remote); codeOf(err) != exitFindings {
		t.Errorf("changed rules: %v", err)
	}
	out, err := pod.Command(t.Context(), program, "explain", remote).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitFindings || !strings.Contains(string(out), "the current namespace, by nftables, are not such") {
		t.Errorf("changed rules, asked inside: %v: %s", err, out)
	}
}
