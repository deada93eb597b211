package kubenode

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/meshctl/meshctl/integration/built"
	"github.com/meshctl/meshctl/integration/lab"
)

// The images that Images makes.
const (
	Meshctl = "localhost/meshctl:e2e"
	App     = "localhost/app:e2e"
)

// Made is what Images made.
type Made struct {
	Program, App string   // the same programs, to be run on the node
	Files        []string // of images
	Size         int64    // of that of meshctl, in bytes
}

// Images builds the product's image as `make image` does, and those of the test's own
// application and of `pause`, with a podman whose storage is below dir.
func Images(t testing.TB, dir string) Made {
	t.Helper()
	program, remove, err := built.Compile()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(remove)
	made := Made{Program: program, App: filepath.Join(dir, "app", "app")}
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", made.App, "./app")
	build.Env = append(lab.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the application: %v\n%s", err, out)
	}
	run := podman(t, dir)
	run("../../.ci/image", Meshctl, program)
	for name, entry := range map[string]string{App: `["/app"]`, pause: `["/app", "pause"]`} {
		file := write(t, filepath.Join(dir, "Dockerfile"), "FROM scratch\nCOPY app /app\nENTRYPOINT "+entry+"\n")
		run("podman", "build", "--quiet", "--pull=never", "--network=host", "--isolation=chroot", "-f", file, "-t", name, filepath.Dir(made.App))
	}
	for i, name := range []string{Meshctl, App, pause} {
		file := filepath.Join(dir, fmt.Sprintf("image%d.tar", i))
		run("podman", "save", "--quiet", "-o", file, name)
		made.Files = append(made.Files, file)
	}
	info, err := os.Stat(made.Files[0])
	if err != nil {
		t.Fatal(err)
	}
	made.Size = info.Size()
	return made
}

// podman runs programs with a podman that has settings and images of its own.
func podman(t testing.TB, dir string) func(name string, args ...string) {
	t.Helper()
	storage := write(t, filepath.Join(dir, "storage.conf"), fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", dir+"/graph", dir+"/run"))
	containers := write(t, filepath.Join(dir, "containers.conf"), fmt.Sprintf(`[containers]
default_ulimits = ["nofile=4096:4096", "nproc=4096:4096"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
tmp_dir = %q
`, dir+"/tmp"))
	return func(name string, args ...string) {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(lab.Environ(), "CONTAINERS_CONF="+containers, "CONTAINERS_STORAGE_CONF="+storage)
		out, err := cmd.CombinedOutput()
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) || err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
}
