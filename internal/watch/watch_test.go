package watch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// told is a Files of a directory, and what it tells.
func told(t *testing.T, dir string) (f *Files, changes chan bool) {
	t.Helper()
	changes = make(chan bool, 100)
	return &Files{
		Log: slog.New(slog.DiscardHandler), Poll: time.Hour, Settle: 10 * time.Millisecond,
		Directories: func() []string { return Directories([]string{dir}, []string{filepath.Join(dir, "a")}) },
		Changed:     func(sure bool) { changes <- sure },
	}, changes
}

func TestWithoutEventsItLooksNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, changes := told(t, "/nowhere")
		ctx, cancel := context.WithCancel(t.Context())
		go f.run(ctx, &watcher{}) // as where the kernel has no inotify left
		synctest.Wait()
		if sure := <-changes; !sure {
			t.Error("the first look does not count as a change")
		}
		for range 2 {
			start := time.Now()
			if sure := <-changes; sure || time.Since(start) != time.Hour {
				t.Errorf("after %v, sure %v", time.Since(start), sure)
			}
		}
		cancel()
		synctest.Wait()
	})
}

func TestChangesAreTold(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	f, changes := told(t, dir)
	f.Matters = func(path string) bool { return filepath.Base(path) != "ignored" }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); f.Run(ctx) }()
	defer func() { cancel(); <-done }()
	next := func(what string) {
		t.Helper()
		select {
		case sure := <-changes:
			if !sure {
				t.Errorf("%s: noticed by looking", what)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s: not told", what)
		}
	}
	next("the beginning")
	fresh := filepath.Join(t.TempDir(), "fresh")
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(fresh, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(fresh, name); err != nil { // one event, not one for each write
			t.Fatal(err)
		}
	}
	write(filepath.Join(elsewhere, "ignored"))
	write(filepath.Join(dir, "ignored"))
	if err := os.Symlink(filepath.Join(elsewhere, "target"), filepath.Join(dir, "a")); err != nil {
		t.Fatal(err)
	}
	next("a new link")
	write(filepath.Join(dir, "b"))
	next("a new file")
	write(filepath.Join(elsewhere, "target")) // the link leads somewhere now, but nobody has looked
	write(filepath.Join(dir, "c"))
	next("another")
	write(filepath.Join(elsewhere, "target"))
	next("what the link leads to")
	if len(changes) > 0 {
		t.Errorf("%d more", len(changes))
	}
}

func TestDirectoriesAreThoseOfFilesAndOfWhatLinksLeadTo(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	link := filepath.Join(dir, "link")
	if err := os.WriteFile(filepath.Join(elsewhere, "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(elsewhere, "x"), link); err != nil {
		t.Fatal(err)
	}
	if got, want := Directories([]string{link, dir, "/no/where"}, []string{link, "/no/where"}), []string{dir, dir, "/no", elsewhere}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
