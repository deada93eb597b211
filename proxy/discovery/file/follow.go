package file

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

// Follower waits for changes of files. Directories are watched, not files:
// editors and Kubernetes replace files, or the link to the directory that they
// are in, instead of writing into them. Where there are no events it looks every
// now and then.
type Follower struct {
	Settle time.Duration // how long files must be quiet before they are read; 0: 100 ms
	Poll   time.Duration // how often to look; 0: 30 s
	Log    *slog.Logger

	// Directories are those whose entries matter; asked again after each change.
	Directories func() []string
	// Changed is called after a change, and with sure false to look whether there
	// was one.
	Changed func(sure bool)
}

// Follow calls Changed until ctx ends.
func (f *Follower) Follow(ctx context.Context) {
	if f.Settle <= 0 {
		f.Settle = 100 * time.Millisecond
	}
	if f.Poll <= 0 {
		f.Poll = 30 * time.Second
	}
	w := f.watcher()
	defer w.close()
	f.Changed(true) // what has happened before the watch began
	poll := time.NewTicker(f.Poll)
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
			f.Log.Warn("watching files", "err", err)
		case <-w.events():
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
		f.Changed(sure)
		w.watch(f.Directories())
	}
}

// directoriesOf are those of paths, and those that links in them lead to.
func directoriesOf(paths []string, files []string) []string {
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

func (f *Follower) watcher() *watcher {
	w := &watcher{watched: map[string]bool{}}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		f.Log.Warn("no events of files: changes are noticed by looking", "every", f.Poll, "err", err)
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
