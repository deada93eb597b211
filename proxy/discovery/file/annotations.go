package file

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/internal/watch"
)

// Annotations reads a pod's own annotations from the file in which the downward
// API shows them. The error names the file and the line.
func Annotations(name string) (annotation.Pod, []annotation.Note, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return annotation.Pod{}, nil, fmt.Errorf("reading annotations: %w", err)
	}
	entries, err := annotation.ParseFile(string(text))
	if err != nil {
		return annotation.Pod{}, nil, fmt.Errorf("reading annotations: %s: %w", name, err)
	}
	pod, notes := annotation.Read(entries)
	return pod, notes, nil
}

// WatchAnnotations calls apply with what the file says, at once and whenever it
// has changed, until ctx ends. A file that cannot be read changes nothing, and is told to log.
func WatchAnnotations(ctx context.Context, name string, log *slog.Logger, apply func(annotation.Pod, []annotation.Note)) {
	var before []byte // nil: nothing was read yet
	failed := ""
	f := watch.Files{
		What:        "annotations",
		Log:         log,
		Directories: func() []string { return watch.Directories([]string{name}, []string{name}) },
		Changed: func(bool) {
			text, err := os.ReadFile(name)
			if err == nil && before != nil && bytes.Equal(text, before) {
				return
			}
			pod, notes, err := Annotations(name)
			if err != nil {
				if err.Error() != failed {
					log.Error("the annotations file is broken: what it said before stays", "err", err)
				}
				failed = err.Error()
				return
			}
			before, failed = append([]byte{}, text...), ""
			apply(pod, notes)
		},
	}
	f.Run(ctx)
}
