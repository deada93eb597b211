// Package file reads Kubernetes objects from files, as kubectl prints them, and
// reads them again when the files change. A file that is broken keeps what it
// said last, and says where it is broken. It decodes with the types of the
// objects' authors and hands on those of package cluster.
package file

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
)

// Config says what is read.
type Config struct {
	// Paths are files, and directories of which the files *.yaml, *.yml and
	// *.json are read, without those below.
	Paths   []string
	Cluster cluster.Config
	Log     *slog.Logger // nil: none

	Settle time.Duration // how long files must be quiet before they are read again; 0: 100 ms
	Poll   time.Duration // how often to look where no event comes; 0: 30 s
	// Told, if set, hears of every load, on the goroutine that loads.
	Told func(Report)
}

// Report is how a load went.
type Report struct {
	Files, Objects int
	Problems       []Problem
	Skipped        map[string]int // objects of kinds that mean nothing here, by kind
	Took           time.Duration
	Changed        bool // something is different from the last load
}

// Broken reports whether some file keeps what it said before.
func (r Report) Broken() bool {
	return slices.ContainsFunc(r.Problems, Problem.Breaks)
}

// Err returns the first problem that breaks the load, and how many more there
// are; nil if there is none.
func (r Report) Err() error {
	var first error
	more := 0
	for _, p := range r.Problems {
		switch {
		case !p.Breaks():
		case first == nil:
			first = p
		default:
			more++
		}
	}
	if more > 0 {
		return fmt.Errorf("%w; and %d more", first, more)
	}
	return first
}

// Reader reads files and remembers what they said. One goroutine uses it.
type Reader struct {
	cfg   Config
	files map[string]*known
	lists map[string][]string // what a path was listed as, while it can be
	last  *cluster.Snapshot
	said  map[string]bool // problems that are in the log
}

// known is what is known of one file.
type known struct {
	stat    stat
	sum     [sha256.Size]byte
	content *content // as it is now
	good    *content // the last without a breaking problem; nil: none yet
}

// stat tells whether a file may have changed, without reading it.
type stat struct {
	size int64
	time time.Time
}

// NewReader makes a Reader that has read nothing.
func NewReader(cfg Config) *Reader {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Reader{cfg: cfg, files: map[string]*known{}, lists: map[string][]string{}}
}

// Load reads what has changed and returns a picture of everything. A Report that
// is Broken comes with what is still good; at the first load that may be little.
func (r *Reader) Load() (*cluster.Snapshot, Report) { return r.load(true) }

// load reads files whose size or time has changed, or, with all set, every file.
func (r *Reader) load(all bool) (*cluster.Snapshot, Report) {
	started := time.Now()
	var report Report
	names := r.list(&report)
	changed := r.forget(names)
	for _, n := range names {
		if r.read(n, all, &report) {
			changed = true
		}
	}
	if changed || r.last == nil {
		report.Changed = true
		r.build(names)
	}
	r.sum(names, &report)
	report.Took = time.Since(started)
	r.log(report)
	if r.cfg.Told != nil {
		r.cfg.Told(report)
	}
	return r.last, report
}

// build makes the picture of what is good.
func (r *Reader) build(names []string) {
	var objects cluster.Objects
	for _, n := range names {
		if k := r.files[n]; k != nil && k.good != nil {
			objects.Add(k.good.objects)
		}
	}
	r.last = cluster.Build(r.cfg.Cluster, objects, r.last)
}

// list returns the files of all paths, in order. A path that cannot be listed
// keeps the files that it had.
func (r *Reader) list(report *Report) []string {
	var out []string
	for _, p := range r.cfg.Paths {
		files, err := filesOf(p)
		if err != nil {
			report.Problems = append(report.Problems, unreadable(p, err))
			files = r.lists[p]
		}
		r.lists[p] = files
		for _, f := range files {
			if !slices.Contains(out, f) {
				out = append(out, f)
			}
		}
	}
	return out
}

// filesOf lists a path. Names that begin with a dot are left out: those of
// Kubernetes' mounts ("..data") and of editors.
func filesOf(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return []string{path}, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range entries {
		switch ext := filepath.Ext(e.Name()); {
		case strings.HasPrefix(e.Name(), "."), ext != ".yaml" && ext != ".yml" && ext != ".json":
		default:
			if name := filepath.Join(path, e.Name()); isFile(name) {
				out = append(out, name)
			}
		}
	}
	return out, nil
}

// isFile is false of directories and of links that lead to one.
func isFile(name string) bool {
	info, err := os.Stat(name)
	return err != nil || !info.IsDir() // what is wrong with it is said when it is read
}

func unreadable(path string, err error) Problem {
	if wrapped, ok := errors.AsType[*fs.PathError](err); ok {
		err = wrapped.Err // the path is said anyway
	}
	return Problem{Code: Unreadable, Object: discovery.Object{File: path}, Text: err.Error()}
}

// forget drops files that are gone.
func (r *Reader) forget(names []string) (changed bool) {
	for n := range r.files {
		if !slices.Contains(names, n) {
			delete(r.files, n)
			changed = true
		}
	}
	return changed
}

// read reads one file if it may have changed.
func (r *Reader) read(name string, all bool, report *Report) (changed bool) {
	info, err := os.Stat(name)
	if err != nil {
		report.Problems = append(report.Problems, unreadable(name, err))
		return false
	}
	k := r.files[name]
	now := stat{info.Size(), info.ModTime()}
	if k != nil && !all && k.stat == now {
		return false
	}
	text, err := os.ReadFile(name)
	if err != nil {
		report.Problems = append(report.Problems, unreadable(name, err))
		return false
	}
	sum := sha256.Sum256(text)
	if k != nil && k.sum == sum {
		k.stat = now
		return false
	}
	if k == nil {
		k = &known{}
		r.files[name] = k
	}
	k.stat, k.sum = now, sum
	k.content = read(name, text, r.cfg.Cluster.Namespace)
	if !slices.ContainsFunc(k.content.problems, Problem.Breaks) {
		k.good = k.content
	}
	return k.good == k.content
}

// sum collects what there is to tell.
func (r *Reader) sum(names []string, report *Report) {
	report.Files, report.Skipped = len(names), map[string]int{}
	for _, n := range names {
		k := r.files[n]
		if k == nil {
			continue
		}
		report.Problems = append(report.Problems, k.content.problems...)
		for kind, many := range k.content.skipped {
			report.Skipped[kind] += many
		}
		if k.good != nil {
			report.Objects += k.good.objects.Len()
		}
	}
	report.Problems = append(report.Problems, between(r.last)...)
	report.Problems = append(report.Problems, policyProblems(r.last)...)
}

// between are the problems that objects have with each other.
func between(s *cluster.Snapshot) []Problem {
	var out []Problem
	for _, w := range s.Warnings() {
		code := Contradiction
		switch w.Kind {
		case cluster.Twice:
			code = Twice
		case cluster.UnknownAppProtocol:
			code = UnknownAppProto
		case cluster.NoSlices:
			code = NoSlices
		case cluster.NoBackend:
			code = NoBackend
		}
		out = append(out, Problem{Code: code, Object: w.Object, Field: w.Field, Text: w.Text})
	}
	return out
}

// logged is how many problems of one load are in the log; `meshctl check` has all.
const logged = 20

// log tells the problems that the last load did not have.
func (r *Reader) log(report Report) {
	now := make(map[string]bool, len(report.Problems))
	told := 0
	for _, p := range report.Problems {
		text := p.Error()
		now[text] = true
		if r.said[text] {
			continue
		}
		if told++; told > logged {
			continue
		}
		attrs := []any{"file", p.Object.Place(), "object", p.Object.String(), "field", p.Field, "code", string(p.Code), "err", p.Text}
		if p.Breaks() {
			r.cfg.Log.Error("a resource file is broken: what it said before stays", attrs...)
		} else {
			r.cfg.Log.Warn("resources", attrs...)
		}
	}
	if told > logged {
		r.cfg.Log.Warn("more problems with resources: see meshctl check", "left_out", told-logged)
	}
	if len(r.said) > 0 && len(report.Problems) == 0 {
		r.cfg.Log.Info("the resource files are in order again")
	}
	r.said = now
	if report.Changed {
		r.cfg.Log.Info("resources loaded", "files", report.Files, "objects", report.Objects, "took", report.Took)
		for kind, many := range report.Skipped {
			r.cfg.Log.Debug("objects of a kind that means nothing here", "kind", kind, "objects", many)
		}
	}
}
