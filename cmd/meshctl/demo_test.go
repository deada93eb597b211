package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
)

// compiled is the real program, for tests that need it to execute itself.
func compiled(t *testing.T) string {
	t.Helper()
	program, remove, err := built.Compile()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	return program
}

// needsNamespaces skips a test that may not make network namespaces here, and
// fails it where it was promised that it may.
func needsNamespaces(t *testing.T) {
	t.Helper()
	if unix.Geteuid() == 0 {
		return
	}
	if os.Getenv("MESHCTL_NETNS") == "require" {
		t.Fatal("needs root, and MESHCTL_NETNS=require")
	}
	t.Skip("needs root")
}

func demoCommand(t *testing.T, program string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, program, "demo")
	cmd.Env = lab.Environ()
	return cmd
}

func TestDemoShowsEveryConnectionAsExpected(t *testing.T) {
	needsNamespaces(t)
	cmd := demoCommand(t, compiled(t))
	began := time.Now()
	raw, err := cmd.CombinedOutput()
	text := string(raw)
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if took := time.Since(began); took > 30*time.Second { // 3.4 s on a quiet machine
		t.Errorf("took %s", took)
	}
	for _, row := range []string{
		`MySQL, port skipped +10\.77\.0\.1:3306 .* ms  not proxied +skipped`,
		`HTTP/1\.1 +10\.77\.0\.1:80 .* ms  http/1 `,
		`HTTP/2 +\[fd77::1\]:80 .* ms  http/2 `,
		`TLS +10\.77\.0\.1:443 .* ms  tls a\.example `,
		`HTTP/1\.1 into the pod +\[fd77::2\]:8080 .* ms  http/1 `,
		`MySQL +10\.77\.0\.1:3306 .* ms  opaque, mysql +port 3306 is opaque by default`,
		`MySQL, unknown port +10\.77\.0\.1:13306 .*s  opaque, mysql +server spoke first`,
		`the same again +10\.77\.0\.1:13306 .* ms  opaque, mysql +that server is remembered`,
		`SMTP, unknown port +\[fd77::1\]:2525 .*s  opaque, smtp +server spoke first`,
		`Redis, slow to ask +10\.77\.0\.1:16379 .*s  opaque, redis +client spoke first`,
		`both silent for 2 s +10\.77\.0\.1:7000 .* s  opaque +timeout`,
	} {
		if !regexp.MustCompile(`(?m)^  ` + row).MatchString(text) {
			t.Errorf("no row %q", row)
		}
	}
	for _, said := range []string{"user 2102, no capabilities", "has removed the rules\n", "All 11 connections as expected in "} {
		if !strings.Contains(text, said) {
			t.Errorf("it does not say %q", said)
		}
	}
	for line := range strings.Lines(text) {
		if utf8.RuneCountInString(line) > 101 || strings.Contains(line, "\x1b") {
			t.Errorf("too long, or coloured without a terminal: %q", line)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// waitFor reads what cmd prints until a line has the words.
func waitFor(t *testing.T, from io.Reader, words string) {
	t.Helper()
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		if strings.Contains(lines.Text(), words) {
			return
		}
	}
	t.Fatalf("the demo ended before it said %q", words)
}

// running are the processes whose program is a file.
func running(t *testing.T, program string) []int {
	t.Helper()
	exes, err := filepath.Glob("/proc/[0-9]*/exe")
	if err != nil {
		t.Fatal(err)
	}
	var pids []int
	for _, exe := range exes {
		if target, err := os.Readlink(exe); err == nil && target == program {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(exe)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids)
	return pids
}

// However the demo is ended midway, no process of it remains, and with the
// processes its namespaces are gone.
func TestDemoEndedMidwayLeavesNothingBehind(t *testing.T) {
	needsNamespaces(t)
	program := compiled(t)
	for name, signal := range map[string]syscall.Signal{"Ctrl-C": unix.SIGINT, "kill": unix.SIGTERM, "kill -9": unix.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			cmd := demoCommand(t, program)
			var complaint bytes.Buffer
			cmd.Stderr = &complaint
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			waitFor(t, out, "proxy: user 2102")
			if n := len(running(t, program)); n < 3 { // the demo, the proxy, its watcher, the guard
				t.Errorf("%d processes", n)
			}
			if err := cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, out)
			err = cmd.Wait()
			var exit *exec.ExitError
			if !errors.As(err, &exit) {
				t.Fatalf("ended with %v", err)
			}
			if signal != unix.SIGKILL && (exit.ExitCode() != exitError || complaint.String() != "meshctl: interrupted; nothing is left behind\n") {
				t.Errorf("exit code %d: %s", exit.ExitCode(), &complaint)
			}
			deadline := time.Now().Add(10 * time.Second)
			for len(running(t, program)) > 0 && time.Now().Before(deadline) {
				time.Sleep(10 * time.Millisecond)
			}
			if left := running(t, program); len(left) > 0 {
				t.Errorf("still running: %v", left)
			}
		})
	}
}

func TestDemoNeedsRootAndSaysHow(t *testing.T) {
	needsNamespaces(t) // only root can become somebody else
	cmd := demoCommand(t, compiled(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != exitPermission {
		t.Errorf("ended with %v, want exit code %d", err, exitPermission)
	}
	if want := "meshctl: making network namespaces needs root (sudo meshctl demo)\n"; string(text) != want {
		t.Errorf("said %q, want %q", text, want)
	}
}
