package targets

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
)

// volume is a folder whose files change as those of a ConfigMap in a pod do: all
// at once, by replacing a link.
//
//	DIR/shop.yaml -> ..data/shop.yaml
//	DIR/..data    -> ..7
//	DIR/..7/shop.yaml
type volume struct {
	dir    string
	number int
	files  map[string]string
}

func newVolume(t testing.TB, files map[string]string) *volume {
	t.Helper()
	v := &volume{dir: t.TempDir()}
	must(t, os.Chmod(filepath.Dir(v.dir), 0o711)) // the proxy is another user
	v.write(t, files)
	return v
}

// write makes files all there is.
func (v *volume) write(t testing.TB, files map[string]string) {
	t.Helper()
	v.number++
	name := ".." + strconv.Itoa(v.number)
	must(t, os.Mkdir(filepath.Join(v.dir, name), 0o755))
	for file, text := range files {
		must(t, os.WriteFile(filepath.Join(v.dir, name, file), []byte(text), 0o644))
	}
	link := filepath.Join(v.dir, "..data")
	was, _ := os.Readlink(link) // none at first
	must(t, os.Symlink(name, link+"_tmp"))
	must(t, os.Rename(link+"_tmp", link))
	for file := range files {
		if _, err := os.Lstat(filepath.Join(v.dir, file)); err != nil {
			must(t, os.Symlink(filepath.Join("..data", file), filepath.Join(v.dir, file)))
		}
	}
	for file := range v.files {
		if _, stays := files[file]; !stays {
			must(t, os.Remove(filepath.Join(v.dir, file)))
		}
	}
	if was != "" {
		must(t, os.RemoveAll(filepath.Join(v.dir, was)))
	}
	v.files = files
}

// kube reads a folder of testdata/kube.
func kube(t testing.TB, folder string) map[string]string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("../../testdata/kube", folder, "*.yaml"))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files in testdata/kube/%s: %v", folder, err)
	}
	files := map[string]string{}
	for _, name := range names {
		text, err := os.ReadFile(name)
		must(t, err)
		files[filepath.Base(name)] = string(text)
	}
	return files
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
