package file

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/internal/watch"
)

// Labels reads a pod's own labels from the file in which the downward API shows
// them. The error names the file and the line.
func Labels(name string) (map[string]string, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("reading labels: %w", err)
	}
	entries, err := annotation.ParseFile(string(text)) // labels are written as annotations are
	if err != nil {
		return nil, fmt.Errorf("reading labels: %s: %w", name, err)
	}
	out := make(map[string]string, len(entries))
	for _, e := range entries {
		out[e.Key] = e.Value
	}
	return out, nil
}

// WatchLabels calls apply with what the file says, at once and whenever it has
// changed, until ctx ends. A file that cannot be read changes nothing, and is told to log.
func WatchLabels(ctx context.Context, name string, log *slog.Logger, apply func(map[string]string)) {
	var before map[string]string // nil: nothing was read yet
	failed := ""
	f := watch.Files{
		What:        "labels",
		Log:         log,
		Directories: func() []string { return watch.Directories([]string{name}, []string{name}) },
		Changed: func(bool) {
			now, err := Labels(name)
			if err != nil {
				if err.Error() != failed {
					log.Error("the labels file is broken: what it said before stays", "err", err)
				}
				failed = err.Error()
				return
			}
			failed = ""
			if before == nil || !maps.Equal(now, before) {
				before = now
				apply(now)
			}
		},
	}
	f.Run(ctx)
}
