package redirect

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/integration/lab"
)

func TestWhatIsNoNetworkNamespaceIsRefusedAtOnce(t *testing.T) {
	dir := t.TempDir()
	file, fifo, dangling := filepath.Join(dir, "file"), filepath.Join(dir, "fifo"), filepath.Join(dir, "dangling")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), unix.Mkfifo(fifo, 0o600), os.Symlink(dir+"/none", dangling)); err != nil {
		t.Fatal(err)
	}
	for ref, reason := range map[string]string{
		"":                      "empty",
		".":                     "not a name",
		"no-such-name-anywhere": "no such name",
		"a\x00b":                "not a name",
		file:                    "a file",
		dir:                     "a folder",
		fifo:                    "a FIFO",
		dangling:                "nothing at that path",
		file + "/x":             "nothing at that path",
		"/dev/null":             "a device",
		"/proc/self/ns/mnt":     "another kind",
		"/proc/self/ns/uts":     "another kind",
		"/proc/self/status":     "a file",
	} {
		t.Run(fmt.Sprintf("%q", ref), func(t *testing.T) {
			began := time.Now()
			ns, err := OpenNamespace(ref)
			if err == nil {
				ns.Close()
				t.Fatal("taken for a network namespace")
			}
			if ClassOf(err) != Usage || !strings.Contains(err.Error(), reason) {
				t.Errorf("%v error %q, want usage and %q", ClassOf(err), err, reason)
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("took %v", took)
			}
		})
	}
}

func TestNamespacesOpenByNamePathAndLink(t *testing.T) {
	pair := lab.Pair(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(pair.Pod.Path(), link); err != nil {
		t.Fatal(err)
	}
	want := inodeIn(t, pair.Pod.Do)
	for _, ref := range []string{pair.Pod.Name, pair.Pod.Path(), link} {
		ns := open(t, ref)
		if got := inodeIn(t, ns.Do); got != want {
			t.Errorf("%s is namespace %s, want %s", ref, got, want)
		}
	}
}

func TestDoComesBackHome(t *testing.T) {
	pair := lab.Pair(t)
	ns := open(t, pair.Pod.Path())
	home := inodeIn(t, func(fn func() error) error { return fn() })
	failure := errors.New("failure")
	for range 50 {
		if err := ns.Do(func() error { return failure }); err != failure {
			t.Fatalf("Do returned %v", err)
		}
	}
	if got := inodeIn(t, func(fn func() error) error { return fn() }); got != home {
		t.Errorf("the test is in %s, was in %s", got, home)
	}
	tasks, err := filepath.Glob("/proc/self/task/*/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range tasks {
		if got, err := os.Readlink(task); err == nil && got != home {
			t.Errorf("thread %s stayed in %s", task, got)
		}
	}
}

// A path that changes its meaning after it was opened must not move the work
// to where it points now.
func TestOnlyTheDescriptorIsUsed(t *testing.T) {
	pair := lab.Pair(t)
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(pair.Pod.Path(), link); err != nil {
		t.Fatal(err)
	}
	want := inodeIn(t, pair.Pod.Do)
	ns := open(t, link)
	if err := errors.Join(os.Remove(link), os.Symlink("/proc/self/ns/net", link)); err != nil {
		t.Fatal(err)
	}
	if got := inodeIn(t, ns.Do); got != want {
		t.Errorf("work is done in %s, want %s", got, want)
	}
}

func TestTheOwnNamespaceNeedsNoRightToEnter(t *testing.T) {
	ns, err := CurrentNamespace()
	if err != nil {
		t.Fatal(err)
	}
	defer ns.Close()
	err = ns.Do(func() error {
		here, err := netns.GetFromPath(ownNamespace)
		if err != nil {
			return err
		}
		defer here.Close()
		if !here.Equal(ns.handle()) {
			t.Error("elsewhere")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func open(t testing.TB, ref string) *Namespace {
	t.Helper()
	ns, err := OpenNamespace(ref)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ns.Close() })
	return ns
}

// inodeIn is the network namespace that do runs its function in.
func inodeIn(t testing.TB, do func(func() error) error) (link string) {
	t.Helper()
	err := do(func() (err error) {
		link, err = os.Readlink("/proc/thread-self/ns/net")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return link
}
