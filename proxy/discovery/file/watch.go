package file

import (
	"context"

	"github.com/meshctl/meshctl/internal/watch"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
)

// Watch loads again whenever the files change, until ctx ends, and hands what is
// new to apply, on the same goroutine.
func (r *Reader) Watch(ctx context.Context, apply func(*cluster.Snapshot)) {
	f := watch.Files{
		What:   "resources",
		Settle: r.cfg.Settle, Poll: r.cfg.Poll, Log: r.cfg.Log,
		Directories: r.directories,
		Changed: func(sure bool) {
			before := r.last
			if now, _ := r.load(sure); now != before {
				apply(now)
			}
		},
	}
	f.Run(ctx)
}

func (r *Reader) directories() []string {
	var files []string
	for _, list := range r.lists {
		files = append(files, list...)
	}
	return watch.Directories(r.cfg.Paths, files)
}
