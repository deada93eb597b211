package file

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/meshctl/meshctl/proxy/discovery/cluster"
)

// settleAtMost is how long files that do not come to rest are waited for, in
// times of Settle.
const settleAtMost = 10

// Watch loads again whenever the files change, until ctx ends, and hands what is
// new to apply. Directories are watched, not files: editors and Kubernetes
// replace files, or the link to the directory that they are in, instead of
// writing into them. Where there are no events Poll notices.
func (r *Reader) Watch(ctx context.Context, apply func(*cluster.Snapshot)) {
	w := r.watcher()
	defer w.close()
	poll := time.NewTicker(r.cfg.Poll)
	defer poll.Stop()
	settle := time.NewTimer(0)
	defer settle.Stop()
	<-settle.C
	var since time.Time // of the first event that was not answered
	for {
		all := true
		select {
		case <-ctx.Done():
			return
		case err, ok := <-w.errors():
			if ok { // events were lost: look
				r.cfg.Log.Warn("watching resource files", "err", err)
			}
		case _, ok := <-w.events():
			if !ok {
				continue
			}
			if since.IsZero() {
				since = time.Now()
			}
			if time.Since(since) < settleAtMost*r.cfg.Settle {
				settle.Reset(r.cfg.Settle)
				continue
			}
		case <-settle.C:
		case <-poll.C:
			all = false
		}
		since = time.Time{}
		settle.Stop()
		before := r.last
		if now, _ := r.load(all); now != before {
			apply(now)
		}
		w.watch(r.directories())
	}
}

// directories are those whose entries matter.
func (r *Reader) directories() []string {
	var out []string
	for _, p := range r.cfg.Paths {
		if info, err := os.Stat(p); err == nil && info.IsDir() {
			out = append(out, p)
		} else {
			out = append(out, filepath.Dir(p))
		}
		for _, f := range r.lists[p] {
			if real, err := filepath.EvalSymlinks(f); err == nil {
				out = append(out, filepath.Dir(real)) // a link may lead elsewhere
			}
		}
	}
	return out
}

// watcher is fsnotify's, or nothing where the kernel gives none.
type watcher struct {
	fs      *fsnotify.Watcher
	watched map[string]bool
}

func (r *Reader) watcher() *watcher {
	w := &watcher{watched: map[string]bool{}}
	fs, err := fsnotify.NewWatcher()
	if err != nil {
		r.cfg.Log.Warn("no events of files: changes are noticed by looking", "every", r.cfg.Poll, "err", err)
		return w
	}
	w.fs = fs
	w.watch(r.directories())
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
		if wanted[d] {
			continue
		}
		wanted[d] = w.fs.Add(d) == nil // polling is there for what cannot be watched
	}
	for d := range w.watched {
		if !wanted[d] {
			_ = w.fs.Remove(d) // gone with its directory
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
