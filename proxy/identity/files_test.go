package identity

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/meshctl/meshctl/proxy/identity/authority"
)

func TestFilesAreTakenOrRefusedWithTheFileAndTheReason(t *testing.T) {
	ca, other := newCA(t), newCA(t)
	good := issue(t, ca, webName)
	cert := pemOf("CERTIFICATE", good.Certificate.Raw)
	root, root2 := pemOf("CERTIFICATE", ca.Certificate().Raw), pemOf("CERTIFICATE", other.Certificate().Raw)
	crlf := func(text []byte) []byte { return bytes.ReplaceAll(text, []byte("\n"), []byte("\r\n")) }
	old, err := authority.New("cluster.local", time.Second, time.Now().Add(-time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	gone := pemOf("CERTIFICATE", old.Certificate().Raw)
	for name, c := range map[string]struct {
		edit func(dir string)
		file string // "": taken
		says string
	}{
		"right": {func(string) {}, "", ""},
		"CRLF line ends": {func(d string) {
			put(t, d, CertificateFile, crlf(cert), 0o644)
			put(t, d, KeyFile, crlf(keyOf(t, good.Key)), 0o600)
			put(t, d, AnchorsFile, crlf(append(root, root2...)), 0o644)
		}, "", ""},
		"two anchors, ours second":     {func(d string) { put(t, d, AnchorsFile, append(root2, root...), 0o644) }, "", ""},
		"text between, no end of line": {func(d string) { put(t, d, AnchorsFile, append([]byte("# ours\n"), bytes.TrimSpace(root)...), 0o644) }, "", ""},
		"an anchor that is over, too":  {func(d string) { put(t, d, AnchorsFile, append(gone, root...), 0o644) }, "", ""},
		"mode 0640":                    {func(d string) { put(t, d, KeyFile, keyOf(t, good.Key), 0o640) }, "", ""},
		"mode 0400":                    {func(d string) { put(t, d, KeyFile, keyOf(t, good.Key), 0o400) }, "", ""},
		"mode 0644":                    {func(d string) { put(t, d, KeyFile, keyOf(t, good.Key), 0o644) }, KeyFile, "everybody can read this private key (mode 0644): chmod o-rwx,g-wx "},
		"mode 0660":                    {func(d string) { put(t, d, KeyFile, keyOf(t, good.Key), 0o660) }, KeyFile, "others than the owner can write this private key (mode 0660): chmod "},
		"mode 0602":                    {func(d string) { put(t, d, KeyFile, keyOf(t, good.Key), 0o602) }, KeyFile, "can write"},
		"missing key":                  {func(d string) { os.Remove(filepath.Join(d, KeyFile)) }, KeyFile, "is missing, though other files of the identity are there"},
		"missing anchors":              {func(d string) { os.Remove(filepath.Join(d, AnchorsFile)) }, AnchorsFile, "is missing"},
		"a key of somebody else":       {func(d string) { put(t, d, KeyFile, keyOf(t, issue(t, ca, webName).Key), 0o600) }, KeyFile, "does not belong to the certificate in tls.crt"},
		"half a key":                   {func(d string) { put(t, d, KeyFile, keyOf(t, good.Key)[:90], 0o600) }, KeyFile, "PEM block 1 is cut off or damaged"},
		"a certificate for a key":      {func(d string) { put(t, d, KeyFile, cert, 0o600) }, KeyFile, "holds no private key"},
		"an encrypted key":             {func(d string) { put(t, d, KeyFile, pemOf("ENCRYPTED PRIVATE KEY", []byte{1}), 0o600) }, KeyFile, "is encrypted"},
		"an empty certificate":         {func(d string) { put(t, d, CertificateFile, nil, 0o644) }, CertificateFile, "holds no certificate"},
		"half a certificate":           {func(d string) { put(t, d, CertificateFile, cert[:len(cert)/2], 0o644) }, CertificateFile, "PEM block 1 is cut off"},
		"a truncated bundle":           {func(d string) { put(t, d, AnchorsFile, append(root, root2[:len(root2)-40]...), 0o644) }, AnchorsFile, "PEM block 2 is cut off or damaged"},
		"a bundle cut in a first line": {func(d string) { put(t, d, AnchorsFile, append(root, root2[:7]...), 0o644) }, AnchorsFile, "PEM block 2 is cut off or damaged"},
		"a damaged middle": {func(d string) {
			put(t, d, AnchorsFile, bytes.Join([][]byte{root, root2[:100], root}, nil), 0o644)
		}, AnchorsFile, "PEM block 2 is cut off or damaged"},
		"an empty bundle":           {func(d string) { put(t, d, AnchorsFile, []byte("\n"), 0o644) }, AnchorsFile, "is empty"},
		"a key in the bundle":       {func(d string) { put(t, d, AnchorsFile, append(root, keyOf(t, good.Key)...), 0o644) }, AnchorsFile, "PEM block 2 is a PRIVATE KEY"},
		"a leaf in the bundle":      {func(d string) { put(t, d, AnchorsFile, append(root, cert...), 0o644) }, AnchorsFile, "PEM block 2: \"(no name)\" is not the certificate of a CA"},
		"a CA that is over":         {func(d string) { put(t, d, AnchorsFile, gone, 0o644) }, AnchorsFile, "has expired: since "},
		"another CA":                {func(d string) { put(t, d, AnchorsFile, root2, 0o644) }, CertificateFile, "peers with the anchors of ca.crt would refuse it: wrong root"},
		"an expired certificate":    {func(d string) { plain(t, d, issue(t, ca, webName, over)) }, CertificateFile, "it has expired: since "},
		"one that is not yet valid": {func(d string) { plain(t, d, issue(t, ca, webName, early)) }, CertificateFile, "is not valid before "},
		"a directory for a file": {func(d string) {
			os.Remove(filepath.Join(d, AnchorsFile))
			os.Mkdir(filepath.Join(d, AnchorsFile), 0o755)
		}, AnchorsFile, "is not a file"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			plain(t, dir, good)
			c.edit(dir)
			s, err := Files(t.Context(), FilesConfig{Dir: dir})
			if err == nil {
				defer s.Close()
				if _, err := s.Current(); err != nil || c.file != "" {
					t.Fatalf("taken (%v), want that %s %s", err, c.file, c.says)
				}
				return
			}
			bad, ok := errors.AsType[*FileError](err)
			if !ok || c.file == "" || bad.File != filepath.Join(dir, c.file) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want of %q: %s", err, c.file, c.says)
			}
		})
	}
}

func TestFilesThatAreNotThereYetAreWaitedFor(t *testing.T) {
	var j journal
	dir := filepath.Join(t.TempDir(), "identity")
	s := follow(t, dir, &j)
	if _, err := s.Current(); !errors.Is(err, ErrWaiting) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("without files: %v", err)
	}
	write(t, dir, issue(t, newCA(t), webName))
	await(t, "a certificate", func() bool { _, err := s.Current(); return err == nil })
	now, _ := s.Current()
	if now.Name() != webName || now.ID() != webName || now.Generation() != 1 || now.Certificate().Leaf == nil {
		t.Errorf("%s, %s, generation %d", now.Name(), now.ID(), now.Generation())
	}
	if st := s.Stats(); st.OK != 1 || st.Failed != 0 || !st.NotAfter.Equal(now.NotAfter()) || st.Refreshed.IsZero() {
		t.Errorf("%+v", st)
	}
}

func TestTheLastGoodFilesStayInForce(t *testing.T) {
	ca := newCA(t)
	for name, spoil := range map[string]func(dir string, next authority.Leaf){
		"half written": func(d string, _ authority.Leaf) {
			put(t, d, CertificateFile, []byte("-----BEGIN CERTIFICATE-----\nMII"), 0o644)
		},
		"a key without its certificate": func(d string, next authority.Leaf) { put(t, d, KeyFile, keyOf(t, next.Key), 0o600) },
		"removed":                       func(d string, _ authority.Leaf) { os.Remove(filepath.Join(d, KeyFile)) },
		"open to all":                   func(d string, _ authority.Leaf) { os.Chmod(filepath.Join(d, KeyFile), 0o666) },
		"another root": func(d string, _ authority.Leaf) {
			put(t, d, AnchorsFile, pemOf("CERTIFICATE", newCA(t).Certificate().Raw), 0o644)
		},
		"all removed": func(d string, _ authority.Leaf) { os.RemoveAll(d) },
	} {
		t.Run(name, func(t *testing.T) {
			var j journal
			dir := filepath.Join(t.TempDir(), "identity")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			plain(t, dir, issue(t, ca, webName))
			s := follow(t, dir, &j)
			before, err := s.Current()
			if err != nil {
				t.Fatal(err)
			}
			next := issue(t, ca, webName)
			spoil(dir, next)
			await(t, "a failure that is counted", func() bool { return s.Stats().Failed > 0 })
			if now, err := s.Current(); now != before {
				t.Fatalf("the last good is not kept: %v", err)
			}
			await(t, "a warning", func() bool { return strings.Contains(j.String(), "the last good ones stay in force") })
			os.MkdirAll(dir, 0o755)
			write(t, dir, next)
			await(t, "the next certificate", func() bool {
				now, err := s.Current()
				return err == nil && now.Certificate().Leaf.Equal(next.Certificate)
			})
		})
	}
}

// Readers never see a certificate with anchors that are not its own, and whoever
// has the anchors of before or after is always understood.
func TestTwentyRotationsWhileEverybodyReads(t *testing.T) {
	t.Parallel()
	var j journal
	dir := t.TempDir()
	cas := []*authority.Authority{newCA(t), newCA(t)}
	make2 := func(i int) authority.Leaf {
		l := issue(t, cas[(i/2)%2], webName)
		l.Anchors = []*x509.Certificate{cas[0].Certificate(), cas[1].Certificate()}
		if i%4 == 3 {
			l.Anchors = l.Anchors[1:] // the old one goes
		}
		return l
	}
	write(t, dir, make2(0))
	s := follow(t, dir, &j)
	var changes, asked atomic.Uint64
	s.Changed(func() { changes.Add(1) })
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			var last uint64
			for {
				select {
				case <-stop:
					return
				default:
				}
				now, err := s.Current()
				if err != nil {
					t.Error(err)
					return
				}
				if now.Generation() < last {
					t.Errorf("generation %d after %d", now.Generation(), last)
				}
				last = now.Generation()
				if _, err := now.VerifyPeer([]*x509.Certificate{now.Certificate().Leaf}, webName, asked.Add(1)%2 == 0, time.Now()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := 1; i <= 20; i++ {
		next := make2(i)
		write(t, dir, next)
		await(t, "the next certificate", func() bool {
			now, err := s.Current()
			return err == nil && now.Certificate().Leaf.Equal(next.Certificate) && len(now.Anchors()) == len(next.Anchors)
		})
	}
	close(stop)
	readers.Wait()
	if st := s.Stats(); st.OK != 21 || st.Failed != 0 || changes.Load() != 20 {
		t.Errorf("%d changes told, %+v; want 20, 21 and no failure\n%s", changes.Load(), st, j.String())
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 5 { // three links, ..data, its directory
		t.Errorf("left in the directory: %v", entries)
	}
}

func TestTheSameFilesWrittenAgainAreNoChange(t *testing.T) {
	var j journal
	dir, l := t.TempDir(), issue(t, newCA(t), webName)
	write(t, dir, l)
	s := follow(t, dir, &j)
	write(t, dir, l)
	next := issue(t, newCA(t), webName)
	write(t, dir, next)
	await(t, "the next", func() bool { now, _ := s.Current(); return now.Certificate().Leaf.Equal(next.Certificate) })
	if now, _ := s.Current(); now.Generation() != 2 {
		t.Errorf("generation %d, want 2", now.Generation())
	}
}

// Without events looking finds the change.
func TestLookingIsTheFallBack(t *testing.T) {
	dir, ca := t.TempDir(), newCA(t)
	write(t, dir, issue(t, ca, webName))
	f := &files{cfg: FilesConfig{Dir: dir}, holder: newHolder(nil, "")}
	if err := f.load(); err != nil {
		t.Fatal(err)
	}
	write(t, dir, issue(t, ca, webName))
	f.reload()
	if now, err := f.Current(); err != nil || now.Generation() != 2 {
		t.Errorf("%v, %v", now, err)
	}
}

func TestTheEndOfTheContextEndsFollowing(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, issue(t, newCA(t), webName))
	ctx, cancel := context.WithCancel(t.Context())
	s, err := Files(ctx, FilesConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Current(); err != nil {
		t.Error("what was in force is gone:", err)
	}
}
