// Package watch tells that files may have changed. It reads none.
package watch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// settleAtMost is how long files that do not come to rest are waited for, in
// times of Settle.
const settleAtMost = 10

// Files waits for changes of files. Directories are watched, not files: editors
// and Kubernetes replace files, or the link to the directory that they are in,
// instead of writing into them. Where there are no events it looks every now and
// then.
type Files struct {
	What   string        // the files, in the log: "identity"
	Settle time.Duration // how long files must be quiet before they are read; 0: 100 ms
	Poll   time.Duration // how often to look; 0: 30 s
	Log    *slog.Logger

	// Directories are those whose entries matter; asked again after each change.
	Directories func() []string
	// Changed is called after a change, and with sure false to look whether there
	// was one.
	Changed func(sure bool)
	// Matters leaves out events of entries that do not matter, by their path; nil: all
	// matter.
	Matters func(path string) bool
	// Next is how long to wait before looking again, asked before each wait; nil: Poll.
	Next func() time.Duration
}

// Run calls Changed until ctx ends.
func (f *Files) Run(ctx context.Context) {
	if f.Settle <= 0 {
		f.Settle = 100 * time.Millisecond
	}
	if f.Poll <= 0 {
		f.Poll = 30 * time.Second
	}
	w := f.watcher()
	defer w.close()
	f.run(ctx, w)
}

func (f *Files) run(ctx context.Context, w *watcher) {
	f.Changed(true) // what has happened before the watch began
	poll := time.NewTimer(f.next())
	defer poll.Stop()
	settle := time.NewTimer(time.Hour)
	settle.Stop()
	defer settle.Stop()
	var first time.Time // event that is not answered yet
	for {
		sure := true
		select {
		case <-ctx.Done():
			return
		case err := <-w.errors(): // events were lost: look
			f.Log.Warn("watching files", "of", f.What, "err", err)
		case e := <-w.events():
			if f.Matters != nil && !f.Matters(e.Name) {
				continue
			}
			if first.IsZero() {
				first = time.Now()
			}
			if time.Since(first) < settleAtMost*f.Settle {
				settle.Reset(f.Settle)
				continue
			}
		case <-settle.C:
		case <-poll.C:
			sure = false
		}
		first = time.Time{}
		settle.Stop()
		w.watch(f.Directories()) // before anything is read, so that what comes meanwhile is an event
		f.Changed(sure)
		w.watch(f.Directories()) // what was read may name others
		poll.Reset(f.next())
	}
}

func (f *Files) next() time.Duration {
	if f.Next != nil {
		return f.Next()
	}
	return f.Poll
}

// Directories are those of paths, files or directories, and those that links to
// files lead to.
func Directories(paths []string, files []string) []string {
	var out []string
	for _, p := range paths {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			out = append(out, p)
		} else {
			out = append(out, filepath.Dir(p))
		}
	}
	for _, f := range files {
		if real, err := filepath.EvalSymlinks(f); err == nil {
			out = append(out, filepath.Dir(real))
		}
	}
	return out
}

// watcher is fsnotify's, or nothing where the kernel gives none.
type watcher struct {
	fs      *fsnotify.Watcher
	watched map[string]bool
}

func (f *Files) watcher() *watcher {
	w := &watcher{watched: map[string]bool{}}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		f.Log.Warn("no events of files: changes are noticed by looking", "of", f.What, "every", f.Poll, "err", err)
		return w
	}
	w.fs = fs
	w.watch(f.Directories())
	return w
}

// watch watches the directories and no others. One that was removed and made
// again has to be added again; adding twice does nothing.
func (w *watcher) watch(directories []string) {
	if w.fs == nil {
		return
	}
	wanted := map[string]bool{}
	for _, d := range directories {
		if _, done := wanted[d]; !done {
			wanted[d] = w.fs.Add(d) == nil // looking is there for what cannot be watched
		}
	}
	for d := range w.watched {
		if !wanted[d] {
			_ = w.fs.Remove(d) // it is gone with its directory
		}
	}
	w.watched = wanted
}

func (w *watcher) events() <-chan fsnotify.Event {
	if w.fs == nil {
		return nil
	}
	return w.fs.Events
}

func (w *watcher) errors() <-chan error {
	if w.fs == nil {
		return nil
	}
	return w.fs.Errors
}

func (w *watcher) close() {
	if w.fs != nil {
		_ = w.fs.Close() // nothing was written
	}
}
