package identity

import (
	"log/slog"
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// watcher tells of changes in a directory. It watches directories, not files:
// Kubernetes turns a link, and other tools rename a new file over the old one.
type watcher struct {
	fs      *fsnotify.Watcher // nil: the kernel gives none, and looking has to do
	dir     string
	watched map[string]bool
}

func newWatcher(dir string, log *slog.Logger) *watcher {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	w := &watcher{dir: filepath.Clean(dir), watched: map[string]bool{}}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		log.Warn("no events of files: changes of the identity are noticed by looking", "err", err)
		return w
	}
	w.fs = fs
	w.watch()
	return w
}

// watch watches the directory, the one that it is in, and those that links in it
// lead to. One that was removed and made again has to be added again; adding
// twice does nothing.
func (w *watcher) watch() {
	if w.fs == nil {
		return
	}
	wanted := map[string]bool{w.dir: true, filepath.Dir(w.dir): true}
	for _, name := range []string{CertificateFile, KeyFile, AnchorsFile} {
		if real, err := filepath.EvalSymlinks(filepath.Join(w.dir, name)); err == nil {
			wanted[filepath.Dir(real)] = true
		}
	}
	for d := range wanted {
		_ = w.fs.Add(d) // looking is there for what cannot be watched
	}
	for d := range w.watched {
		if !wanted[d] {
			_ = w.fs.Remove(d) // it is gone with its directory
		}
	}
	w.watched = wanted
}

// matters leaves out what else happens in the directory that ours is in.
func (w *watcher) matters(e fsnotify.Event) bool {
	return filepath.Dir(e.Name) != filepath.Dir(w.dir) || e.Name == w.dir || filepath.Dir(w.dir) == w.dir
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
