package identity

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/meshctl/meshctl/internal/watch"
)

// FilesConfig says where the files are.
type FilesConfig struct {
	Dir    string        // has tls.crt, tls.key and ca.crt
	Settle time.Duration // how long the files must be quiet before they are read; 0: 100 ms
	Poll   time.Duration // how often to look though nothing was noticed; 0: 30 s, and 1 s until the first certificate
	Log    *slog.Logger  // nil: none
}

// files is the Source of a directory.
type files struct {
	*holder
	cfg     FilesConfig
	cancel  context.CancelFunc
	running sync.WaitGroup

	// Only the goroutine of follow has these.
	good  [sha256.Size]byte // what is in force
	fault string            // the last error told
	bad   [sha256.Size]byte // what it was about
}

// Files follows a directory until ctx ends or the Source is closed. Files that
// are there have to be in order; if there are none yet, the Source waits for them. What
// is wrong with later ones is told to the log and counted, and the last good ones
// stay in force.
func Files(ctx context.Context, cfg FilesConfig) (Source, error) {
	if cfg.Settle <= 0 {
		cfg.Settle = 100 * time.Millisecond
	}
	if cfg.Poll <= 0 {
		cfg.Poll = 30 * time.Second
	}
	f := &files{cfg: cfg, holder: newHolder(cfg.Log, fmt.Sprintf("%s has no %s, %s and %s", cfg.Dir, CertificateFile, KeyFile, AnchorsFile))}
	if err := f.load(); err != nil && !errors.Is(err, errNothingThere) {
		return nil, err
	}
	ctx, f.cancel = context.WithCancel(ctx)
	f.running.Go(func() { f.follow(ctx) })
	f.running.Go(func() { f.watchLife(ctx) })
	return f, nil
}

// Close implements Source.
func (f *files) Close() error {
	f.cancel()
	f.running.Wait()
	return nil
}

// follow reads the files after each change, and every now and then.
func (f *files) follow(ctx context.Context) {
	dir := f.cfg.Dir
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	dir = filepath.Clean(dir)
	parent := filepath.Dir(dir)
	names := []string{filepath.Join(dir, CertificateFile), filepath.Join(dir, KeyFile), filepath.Join(dir, AnchorsFile)}
	w := watch.Files{
		What: "the identity", Settle: f.cfg.Settle, Poll: f.cfg.Poll, Log: f.log, Next: f.every,
		// The directory, the one that it is in, and those that links in it lead to.
		Directories: func() []string { return append(watch.Directories(names, names), parent) },
		Changed:     func(bool) { f.reload() },
		// What else happens in the directory that ours is in does not matter.
		Matters: func(path string) bool { return filepath.Dir(path) != parent || path == dir || parent == dir },
	}
	w.Run(ctx)
}

// every is how long to wait before looking again.
func (f *files) every() time.Duration {
	if f.current.Load() == nil {
		return min(time.Second, f.cfg.Poll)
	}
	return f.cfg.Poll
}

// load takes what the files say now.
func (f *files) load() error {
	t, err := readTexts(f.cfg.Dir)
	if err == nil {
		if t.sum == f.good {
			f.fault = ""
			return nil
		}
		var s *Snapshot
		if s, err = t.parse(f.cfg.Dir, time.Now()); err == nil {
			f.take(s)
			f.good, f.fault = t.sum, ""
			return nil
		}
	}
	f.bad = t.sum
	return err
}

// reload is load while the proxy runs: each error is told and counted once.
func (f *files) reload() {
	bad := f.bad
	err := f.load()
	if err == nil || err.Error() == f.fault && bad == f.bad {
		return
	}
	f.fault = err.Error()
	if f.current.Load() != nil {
		f.failed.Add(1)
		f.log.Warn("the identity's files are not taken: the last good ones stay in force", "err", err)
		return
	}
	if errors.Is(err, errNothingThere) {
		return // Current says so
	}
	f.failed.Add(1)
	f.wait(err.Error())
	f.log.Warn("the identity's files are not taken: there is no identity yet", "err", err)
}
