package identity

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// The files of a directory, with the names that cert-manager gives them.
const (
	CertificateFile = "tls.crt" // the proxy's certificate, then its intermediates
	KeyFile         = "tls.key" // PEM, not encrypted
	AnchorsFile     = "ca.crt"  // one trust anchor or several
)

// FileError is a file that cannot be used.
type FileError struct {
	File string
	Err  error
}

func (e *FileError) Error() string { return e.File + ": " + e.Err.Error() }
func (e *FileError) Unwrap() error { return e.Err }

// errNothingThere: none of the files is there, as before a volume is mounted.
var errNothingThere = errors.New("none of the files is there yet")

// texts are the files as they were at one moment.
type texts struct {
	certificate, key, anchors []byte
	sum                       [sha256.Size]byte // of all three
}

// Read reads a directory as the proxy would at its start. Its errors are
// FileErrors, but that of a directory in which none of the files is.
func Read(dir string, now time.Time) (*Snapshot, error) {
	t, err := readTexts(dir)
	if err != nil {
		return nil, err
	}
	return t.parse(dir, now)
}

// readTexts reads the three files as of one moment. Kubernetes replaces them all
// by turning the link ..data, so that two reads one after the other may see
// different pairs: what changed meanwhile is read again.
func readTexts(dir string) (texts, error) {
	var t texts
	for range 10 {
		before, err := look(dir)
		if err != nil {
			return t, err
		}
		if t, err = readOnce(dir); err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				continue // it was there: look again
			}
			return t, err
		}
		after, err := look(dir)
		if err == nil && before == after {
			return t, nil
		}
	}
	return t, &FileError{dir, errors.New("the files change faster than they can be read")}
}

// seen is what tells one state of the files from another.
type seen [3]struct {
	path string
	size int64
	time int64
}

// look says which files there are, and refuses a key that others can read.
func look(dir string) (seen, error) {
	var s seen
	missing := ""
	for i, name := range []string{CertificateFile, KeyFile, AnchorsFile} {
		path := filepath.Join(dir, name)
		real, err := filepath.EvalSymlinks(path)
		if errors.Is(err, fs.ErrNotExist) {
			missing += " " + name
			continue
		}
		info, err2 := os.Stat(path)
		if err = errors.Join(err, err2); err != nil {
			return s, &FileError{path, bare(err)}
		}
		if !info.Mode().IsRegular() {
			return s, &FileError{path, errors.New("is not a file")}
		}
		if name == KeyFile {
			if err := private(path, info.Mode().Perm()); err != nil {
				return s, &FileError{path, err}
			}
		}
		s[i].path, s[i].size, s[i].time = real, info.Size(), info.ModTime().UnixNano()
	}
	switch missing {
	case "":
		return s, nil
	case " " + CertificateFile + " " + KeyFile + " " + AnchorsFile:
		return s, fmt.Errorf("%s: %w (%s)", dir, errNothingThere, strings.Join(strings.Fields(missing), ", "))
	}
	first := strings.Fields(missing)[0]
	return s, &FileError{filepath.Join(dir, first), errors.New("is missing, though other files of the identity are there")}
}

// private refuses what anybody can read or more than the owner can write. 0640
// is what Kubernetes mounts with an fsGroup.
func private(path string, mode fs.FileMode) error {
	switch {
	case mode&0o004 != 0:
		return fmt.Errorf("everybody can read this private key (mode %#o): chmod o-rwx,g-wx %s, or defaultMode: 0440 of a volume", mode, path)
	case mode&0o022 != 0:
		return fmt.Errorf("others than the owner can write this private key (mode %#o): chmod o-rwx,g-wx %s", mode, path)
	}
	return nil
}

func readOnce(dir string) (texts, error) {
	var t texts
	sum := sha256.New()
	for _, f := range []struct {
		name string
		to   *[]byte
	}{{CertificateFile, &t.certificate}, {KeyFile, &t.key}, {AnchorsFile, &t.anchors}} {
		path := filepath.Join(dir, f.name)
		text, err := readFile(path)
		if err != nil {
			return t, &FileError{path, bare(err)}
		}
		*f.to = text
		fmt.Fprintf(sum, "%d ", len(text))
		sum.Write(text)
	}
	sum.Sum(t.sum[:0])
	return t, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("is larger than %d bytes", maxFile)
	}
	return text, err
}

// bare takes the path off an error: FileError says it.
func bare(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// parse makes a Snapshot of the texts, or names the file that is wrong.
func (t texts) parse(dir string, now time.Time) (*Snapshot, error) {
	wrong := func(name string, err error) (*Snapshot, error) {
		return nil, &FileError{filepath.Join(dir, name), err}
	}
	if _, err := parseCertificates(t.certificate); err != nil {
		return wrong(CertificateFile, err)
	}
	if err := checkKey(t.key); err != nil {
		return wrong(KeyFile, err)
	}
	bundle, err := ParseAnchors(t.anchors, now)
	if err != nil {
		return wrong(AnchorsFile, err)
	}
	pair, err := tls.X509KeyPair(t.certificate, t.key)
	if err != nil {
		text := strings.TrimPrefix(err.Error(), "tls: ")
		if strings.Contains(text, "does not match") {
			text = "the key does not belong to the certificate in " + CertificateFile
		}
		return wrong(KeyFile, errors.New(text))
	}
	s, err := newSnapshot(pair, newAnchors(bundle), now)
	if err != nil {
		return wrong(CertificateFile, fmt.Errorf("peers with the anchors of %s would refuse it: %w", AnchorsFile, err))
	}
	return s, nil
}

// ParseAnchors reads a bundle of trust anchors in PEM. Each has to be a
// CA certificate, and one at least has to be valid at the time now.
func ParseAnchors(text []byte, now time.Time) ([]*x509.Certificate, error) {
	if strings.TrimSpace(string(text)) == "" {
		return nil, errors.New("is empty: the issuer says of no CA that it is to be trusted (ACME issuers do not)")
	}
	bundle, err := parseCertificates(text)
	if err != nil {
		return nil, err
	}
	var over error
	valid := 0
	for i, c := range bundle {
		// x509 would let any certificate in a pool of roots sign others.
		if !c.IsCA && c.Version >= 3 {
			return nil, fmt.Errorf("PEM block %d: %q is not the certificate of a CA", i+1, title(c.Subject.String()))
		}
		if now.Before(c.NotBefore) || now.After(c.NotAfter) {
			over = outOfTime(c, now)
			continue
		}
		valid++
	}
	if valid == 0 {
		return nil, over
	}
	return bundle, nil
}

// ParseChain reads a certificate and its intermediates in PEM.
func ParseChain(text []byte) ([]*x509.Certificate, error) { return parseCertificates(text) }
