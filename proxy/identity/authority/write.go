package authority

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// current is the link by which a directory is turned from one state to the next,
// as in a volume of Kubernetes.
const current = "..data"

// Write writes tls.crt, tls.key (mode 0600) and ca.crt into a directory, so that a
// reader sees all three of this Leaf or all three of what was there before: the
// files are links through one link that is turned (as Kubernetes does it). Written
// by root they belong to the directory's owner, who has to read them:
//
//	tls.crt -> ..data/tls.crt    ..data -> ..1764512345678901234
func (l Leaf) Write(dir string) error {
	if err := l.write(dir); err != nil {
		return fmt.Errorf("writing the certificate: %w", err)
	}
	return nil
}

func (l Leaf) write(dir string) error {
	key, err := keyPEM(l.Key)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	version := ".." + strconv.FormatInt(time.Now().UnixNano(), 10)
	if err := os.Mkdir(filepath.Join(dir, version), 0o755); err != nil {
		return err
	}
	files := []struct {
		name string
		text []byte
		mode os.FileMode
	}{
		{"tls.crt", certificatePEM(l.Certificate), 0o644},
		{"tls.key", key, 0o600},
		{"ca.crt", certificatePEM(l.Anchors...), 0o644},
	}
	for _, f := range files {
		path := filepath.Join(dir, version, f.name)
		if err := errors.Join(os.WriteFile(path, f.text, f.mode), own(path, dir)); err != nil {
			return errors.Join(err, os.RemoveAll(filepath.Join(dir, version)))
		}
	}
	// The first time all three appear at once: until the link is turned, theirs lead
	// nowhere.
	for _, f := range files {
		if _, err := os.Lstat(filepath.Join(dir, f.name)); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err := link(dir, f.name); err != nil {
			return errors.Join(err, os.RemoveAll(filepath.Join(dir, version)))
		}
	}
	before, _ := os.Readlink(filepath.Join(dir, current)) // none: the first time
	if err := turn(dir, current, version); err != nil {
		return errors.Join(err, os.RemoveAll(filepath.Join(dir, version)))
	}
	for _, f := range files {
		if err := link(dir, f.name); err != nil {
			return err
		}
	}
	// Only what was made here: a name of dots and digits in the same directory.
	if number, ok := strings.CutPrefix(before, ".."); ok {
		if _, err := strconv.ParseInt(number, 10, 64); err == nil {
			return os.RemoveAll(filepath.Join(dir, before))
		}
	}
	return nil
}

// link makes a file's link, unless it is there.
func link(dir, name string) error {
	to := filepath.Join(current, name)
	if is, err := os.Readlink(filepath.Join(dir, name)); err == nil && is == to {
		return nil
	}
	return turn(dir, name, to)
}

// turn makes a link, or puts it in the place of what was there, at once.
func turn(dir, name, to string) error {
	fresh := filepath.Join(dir, "..new."+strings.TrimLeft(name, "."))
	if err := os.Remove(fresh); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Symlink(to, fresh); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(dir, name))
}

// own gives a file to the owner and group of a directory, if root writes it.
func own(path, dir string) error {
	info, err := os.Stat(dir)
	if err != nil || os.Geteuid() != 0 {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil // no owner is known
	}
	return os.Chown(path, int(stat.Uid), int(stat.Gid))
}
