package redirect

import (
	"golang.org/x/sys/unix"
)

// postName is the address that a watcher can be reached at. Abstract socket
// names belong to a network namespace (unix(7)), as the rules do: whoever has
// the name is the one watcher of the namespace.
const postName = "@meshctl-watcher"

// openPost takes the name; -1 and an error if somebody else has it.
func openPost() (fd int, err error) {
	fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: postName}); err == nil {
		err = unix.Listen(fd, 4)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// answerPost takes one caller and tells whether it may retire us; if so, the
// name is free before the caller knows. Others are sent away.
func answerPost(post int) bool {
	caller, _, err := unix.Accept4(post, unix.SOCK_CLOEXEC)
	if err != nil {
		return false
	}
	defer unix.Close(caller)
	if !trusted(caller) {
		return false
	}
	unix.Close(post)
	return true
}

// trusted tells whether the other end belongs to root or to our own user.
func trusted(conn int) bool {
	peer, err := unix.GetsockoptUcred(conn, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && (peer.Uid == 0 || int(peer.Uid) == unix.Geteuid())
}

// retireOlder asks the watcher of the calling thread's namespace, if there is
// one, to remove nothing; it waits for the answer for a second at most.
func retireOlder() {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &unix.Timeval{Sec: 1})
	if unix.Connect(fd, &unix.SockaddrUnix{Name: postName}) != nil || !trusted(fd) {
		return
	}
	unix.Read(fd, make([]byte, 1)) // ends when the other side has closed
}

// Retire tells a watcher that an earlier run left in ns that the rules are not
// its own any more. Without a watcher it does nothing.
func Retire(ns *Namespace) error {
	return ns.Do(func() error {
		retireOlder()
		return nil
	})
}
