package file

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestLabelsAreReadFromTheDownwardAPIAndFollowed(t *testing.T) {
	name := filepath.Join(t.TempDir(), "labels")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name+".new", name); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := Labels(name); err == nil {
		t.Error("a file that is not there has labels")
	}
	write("app=\"web\"\npod-template-hash=\"5d\"\n")
	got, err := Labels(name)
	if d := cmp.Diff(map[string]string{"app": "web", "pod-template-hash": "5d"}, got); err != nil || d != "" {
		t.Errorf("%v %s", err, d)
	}
	heard := make(chan map[string]string, 10)
	done := make(chan struct{})
	go func() {
		defer close(done)
		WatchLabels(t.Context(), name, slog.New(slog.DiscardHandler), func(l map[string]string) { heard <- l })
	}()
	want := func(app string) {
		t.Helper()
		select {
		case l := <-heard:
			if l["app"] != app {
				t.Errorf("app %q, want %q", l["app"], app)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("app %q is never heard of", app)
		}
	}
	want("web")
	write("app=broken\n")
	write("app=\"db\"\n")
	want("db")
	write("")
	want("")
}

func TestABrokenLabelsFileNamesItsLine(t *testing.T) {
	name := filepath.Join(t.TempDir(), "labels")
	if err := os.WriteFile(name, []byte("a=\"b\"\nc=d\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Labels(name); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("%v", err)
	}
}
