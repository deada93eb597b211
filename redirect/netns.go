package redirect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// namedDirs is where ip-netns(8) keeps names; the second is the older place.
var namedDirs = [...]string{"/run/netns", "/var/run/netns"}

// ownNamespace is the namespace of whichever thread asks, also where /proc is
// that of another PID namespace.
const ownNamespace = "/proc/thread-self/ns/net"

// nsGetNSType is NS_GET_NSTYPE of ioctl_ns(2): which kind of namespace a
// descriptor stands for.
const nsGetNSType = 0xb703

// Namespace is an open network namespace. Only its descriptor is used: what
// happens to the path afterwards does not matter.
type Namespace struct {
	file *os.File
	ref  string
}

// NamespaceError is a reference that names no network namespace.
type NamespaceError struct {
	Ref    string // as the caller wrote it
	Reason string
	Err    error // set when the system refused to tell, rather than the reference being wrong
}

// Error names the reference and the reason.
func (e *NamespaceError) Error() string {
	text := fmt.Sprintf("network namespace %q: %s", e.Ref, e.Reason)
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Unwrap is the system's error, if there was one.
func (e *NamespaceError) Unwrap() error { return e.Err }

// OpenNamespace opens a network namespace by its ip-netns(8) name or, when ref
// has a slash, by path (/run/netns/X, /proc/PID/ns/net). Anything else behind
// the path is a *NamespaceError within a second: no file type can make it wait.
func OpenNamespace(ref string) (*Namespace, error) {
	switch {
	case ref == "":
		return nil, &NamespaceError{Ref: ref, Reason: "the reference is empty"}
	case ref == "." || ref == ".." || strings.ContainsRune(ref, 0):
		return nil, &NamespaceError{Ref: ref, Reason: "not a name"}
	case strings.ContainsRune(ref, '/'):
		return openPath(ref, ref)
	}
	for _, dir := range namedDirs {
		path := filepath.Join(dir, ref)
		if _, err := os.Lstat(path); err == nil {
			return openPath(ref, path)
		}
	}
	return nil, &NamespaceError{Ref: ref, Reason: "no such name in " + namedDirs[0]}
}

// CurrentNamespace is the namespace that the program runs in.
func CurrentNamespace() (*Namespace, error) {
	ns, err := openPath("current", ownNamespace)
	if err != nil {
		return nil, err
	}
	ns.ref = "the current namespace"
	return ns, nil
}

// openPath looks before it opens: O_PATH neither waits for a FIFO's other end
// nor wakes a device, and what is then opened is what was looked at.
func openPath(ref, path string) (*Namespace, error) {
	look, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, notOpened(ref, err)
	}
	defer unix.Close(look)
	var stat unix.Statfs_t
	if err := unix.Fstatfs(look, &stat); err != nil {
		return nil, &NamespaceError{Ref: ref, Reason: "cannot be looked at", Err: err}
	}
	if stat.Type != unix.NSFS_MAGIC {
		return nil, &NamespaceError{Ref: ref, Reason: "not a namespace but " + fileType(look)}
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", look), unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, &NamespaceError{Ref: ref, Reason: "cannot be opened", Err: err}
	}
	kind, err := unix.IoctlRetInt(fd, nsGetNSType)
	if err != nil || kind != unix.CLONE_NEWNET {
		unix.Close(fd)
		return nil, &NamespaceError{Ref: ref, Reason: "a namespace of another kind"}
	}
	return &Namespace{file: os.NewFile(uintptr(fd), ref), ref: ref}, nil
}

func notOpened(ref string, err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENAMETOOLONG) {
		return &NamespaceError{Ref: ref, Reason: "there is nothing at that path"}
	}
	return &NamespaceError{Ref: ref, Reason: "cannot be opened", Err: err}
}

func fileType(fd int) string {
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil {
		return "something else"
	}
	switch stat.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		return "a file"
	case unix.S_IFDIR:
		return "a folder"
	case unix.S_IFIFO:
		return "a FIFO"
	case unix.S_IFSOCK:
		return "a socket"
	case unix.S_IFCHR, unix.S_IFBLK:
		return "a device"
	}
	return "something else"
}

// String is the reference the namespace was opened by.
func (n *Namespace) String() string { return n.ref }

// Close gives the descriptor back.
func (n *Namespace) Close() error { return n.file.Close() }

// handle is the descriptor in the library's words; it stays n's.
func (n *Namespace) handle() netns.NsHandle { return netns.NsHandle(n.file.Fd()) }

// Do runs fn on a locked thread inside the namespace, with every capability the
// program is permitted in effect. The thread goes back to where it was; if that
// fails it is never used again. Sockets that fn opens and processes that it
// starts stay in the namespace; goroutines that it starts are not in it.
func (n *Namespace) Do(fn func() error) error {
	done := make(chan error, 1)
	go n.runInside(fn, done)
	return <-done
}

func (n *Namespace) runInside(fn func() error, done chan<- error) {
	runtime.LockOSThread()
	home, err := n.enter()
	if err != nil {
		runtime.UnlockOSThread()
		done <- err
		return
	}
	err = fn()
	if home == nil {
		runtime.UnlockOSThread()
	} else if netns.Set(*home) == nil {
		home.Close()
		runtime.UnlockOSThread()
	} // else the thread ends with this goroutine
	done <- err
}

// doAndEnd is Do for an fn that changes the thread for good: the thread ends with
// it.
func (n *Namespace) doAndEnd(fn func() error) error {
	done := make(chan error, 1)
	go n.runAndEnd(fn, done)
	return <-done
}

func (n *Namespace) runAndEnd(fn func() error, done chan<- error) {
	runtime.LockOSThread() // and never unlocked
	_, err := n.enter()
	if err == nil {
		err = fn()
	}
	done <- err
}

// enter moves the thread and returns the way back, nil when it is already
// there (which needs no capability).
func (n *Namespace) enter() (home *netns.NsHandle, err error) {
	if err := raiseCapabilities(); err != nil {
		return nil, err
	}
	here, err := netns.GetFromPath(ownNamespace)
	if err != nil {
		return nil, &Error{Step: "finding the thread's own namespace", Err: err}
	}
	if here.Equal(n.handle()) {
		here.Close()
		return nil, nil
	}
	if err := netns.Set(n.handle()); err != nil {
		here.Close()
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w: CAP_SYS_ADMIN is needed to enter another namespace", err)
		}
		return nil, &Error{Step: "entering namespace " + n.ref, Err: err}
	}
	return &here, nil
}

// SetCloseWait sets for how many seconds conntrack of ns keeps a connection
// that only one side has closed (nf_conntrack_tcp_timeout_close_wait).
func SetCloseWait(ns *Namespace, seconds int) error {
	return ns.Do(func() error {
		const path = "/proc/sys/net/netfilter/nf_conntrack_tcp_timeout_close_wait"
		if err := os.WriteFile(path, fmt.Appendln(nil, seconds), 0o644); err != nil {
			return &Error{Step: "setting conntrack's close-wait time", Err: err}
		}
		return nil
	})
}
