package redirect

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/meshctl/meshctl/integration/lab"
)

// playLeave leaves a watcher and stays until its standard input ends.
func playLeave() error {
	ns, err := OpenNamespace(os.Getenv("REDIRECT_TEST_NETNS"))
	if err != nil {
		return err
	}
	os.Setenv(roleEnv, "watch")
	if err := Leave(ns, os.Args[0], os.Args); err != nil {
		return err
	}
	os.Stdout.WriteString("R")
	os.Stdin.Read(make([]byte, 1))
	return nil
}

// playWatch creates a file where a watcher would remove rules.
func playWatch() error {
	return Watch(slog.New(slog.NewTextHandler(os.Stderr, nil)), func(context.Context) error {
		link, err := os.Readlink("/proc/self/ns/net")
		if err != nil {
			return err
		}
		return os.WriteFile(os.Getenv("REDIRECT_TEST_FILE"), []byte(link), 0o600)
	})
}

func startLeave(t *testing.T, pod *lab.Namespace, file string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = as("leave", "REDIRECT_TEST_NETNS="+pod.Path(), "REDIRECT_TEST_FILE="+file)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatalf("no watcher in place: %v", err)
	}
	return cmd
}

func TestAWatcherCleansUpAfterAKilledProcess(t *testing.T) {
	pair := lab.Pair(t)
	file := filepath.Join(t.TempDir(), "removed")
	cmd := startLeave(t, pair.Pod, file)
	time.Sleep(20 * time.Millisecond)
	if _, err := os.Stat(file); err == nil {
		t.Fatal("removed while the process lives")
	}
	if caps := capsOfChild(t, cmd.Process.Pid); caps != "0000000000003000" {
		t.Errorf("the watcher may do %s, want NET_ADMIN and NET_RAW alone", caps)
	}
	cmd.Process.Kill()
	want := inodeIn(t, pair.Pod.Do)
	if got := awaitFile(t, file); got != want {
		t.Errorf("worked in %s, want %s", got, want)
	}
}

func TestANewerRunRetiresTheWatcher(t *testing.T) {
	pair := lab.Pair(t)
	dir := t.TempDir()
	older := startLeave(t, pair.Pod, filepath.Join(dir, "older"))
	newer := startLeave(t, pair.Pod, filepath.Join(dir, "newer"))
	older.Process.Kill()
	older.Wait()
	newer.Process.Kill()
	awaitFile(t, filepath.Join(dir, "newer"))
	if _, err := os.Stat(filepath.Join(dir, "older")); err == nil {
		t.Error("the older watcher removed the newer run's rules")
	}
}

func TestRetireNeedsNoWatcher(t *testing.T) {
	pair := lab.Pair(t)
	ns := open(t, pair.Pod.Path())
	if err := Retire(ns); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "removed")
	cmd := startLeave(t, pair.Pod, file)
	if err := Retire(ns); err != nil {
		t.Fatal(err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	time.Sleep(100 * time.Millisecond)
	if _, err := os.Stat(file); err == nil {
		t.Error("a retired watcher removed the rules")
	}
}

// capsOfChild is the permitted set of a process's only child.
func capsOfChild(t *testing.T, pid int) string {
	t.Helper()
	var children []string
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		more, _ := os.ReadFile(task)
		children = append(children, strings.Fields(string(more))...)
	}
	if len(children) == 0 {
		t.Fatal("no watcher")
	}
	child, err := strconv.Atoi(children[0])
	if err != nil {
		t.Fatal(err)
	}
	return statusOf(t, child)["CapPrm"]
}

func awaitFile(t *testing.T, path string) string {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		text, err := os.ReadFile(path)
		if err == nil && len(text) > 0 {
			return string(text)
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v after 5 s", filepath.Base(path), err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
