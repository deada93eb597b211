package servers

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Templates holds the data folders of databases, each made once when first asked
// for and copied for every server, because making one takes seconds.
type Templates struct {
	dir      string
	mariadb  func() (string, error)
	postgres func() (string, error)
}

// NewTemplates makes an empty store; Close removes it. A test binary has one.
func NewTemplates() (*Templates, error) {
	dir, err := os.MkdirTemp("", "meshctl-servers-")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	s := &Templates{dir: dir}
	s.mariadb = sync.OnceValues(s.makeMariaDB)
	s.postgres = sync.OnceValues(s.makePostgres)
	return s, nil
}

// Close removes the templates.
func (s *Templates) Close() error { return os.RemoveAll(s.dir) }

func (s *Templates) makeMariaDB() (string, error) {
	dir := filepath.Join(s.dir, "mariadb")
	return dir, run("mariadb-install-db", "--no-defaults", "--user=mysql", "--datadir="+dir,
		"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
		"--innodb-log-file-size=4M", "--innodb-buffer-pool-size=16M")
}

func (s *Templates) makePostgres() (string, error) {
	dir := filepath.Join(s.dir, "postgres")
	bin, err := postgresBin()
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", err
	}
	if err := give(dir, "postgres"); err != nil {
		return "", err
	}
	err = run("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups",
		filepath.Join(bin, "initdb"), "-D", dir, "-A", "trust", "-U", "postgres", "--no-sync", "-E", "UTF8", "--locale=C")
	if err != nil {
		return "", err
	}
	hba := "host all all 0.0.0.0/0 trust\nhost all all ::/0 trust\n"
	return dir, os.WriteFile(filepath.Join(dir, "pg_hba.conf"), []byte(hba), 0o600)
}

// postgresBin is where Debian keeps the programs of the version installed.
func postgresBin() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin")
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("no PostgreSQL under /usr/lib/postgresql")
	}
	return found[len(found)-1], nil
}

// copyTo copies a template, owners and modes included, into a new folder.
func copyTo(t testing.TB, template func() (string, error), user string) string {
	t.Helper()
	from, err := template()
	if err != nil {
		t.Fatalf("making the data folder: %v", err)
	}
	dir := filepath.Join(folder(t), "data")
	if err := run("cp", "-a", "--reflink=auto", from, dir); err != nil {
		t.Fatalf("copying the data folder: %v", err)
	}
	if err := give(dir, user); err != nil {
		t.Fatal(err)
	}
	return dir
}

// give makes a file or folder the user's own.
func give(path, name string) error {
	u, err := user.Lookup(name)
	if err != nil {
		return err
	}
	uid, err := strconv.Atoi(u.Uid)
	if err != nil {
		return err
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return err
	}
	return os.Chown(path, uid, gid)
}

// run runs a program to its end and gives its output with the error.
func run(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}
