package redirect

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/internal/listen"
)

// Proxy is the program that Exec becomes.
type Proxy struct {
	Program   string   // path of the binary
	Args      []string // with the program's name first
	Env       []string // listen.Env is added
	UID, GID  uint32   // whom it runs as; neither may be 0
	Listeners *Listeners
}

// Exec turns this process into the proxy, inside ns, as an ordinary user who
// can never be more: no groups, no capability in any set, no_new_privs, no core
// dumps, a system call filter, no descriptor but the standard three and the
// listeners. It returns only when that fails; the process is then in no state
// to go on.
func Exec(ns *Namespace, p Proxy) error {
	if p.UID == 0 || p.GID == 0 {
		return &Error{Step: "becoming the proxy", Class: Usage, Err: errors.New("neither its uid nor its gid may be 0")}
	}
	return ns.Do(func() error {
		// The binary may lie where the proxy's user may not go: it is opened
		// before the rights are gone.
		binary, err := unix.Open(p.Program, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return &Error{Step: "opening " + p.Program, Err: err}
		}
		if err := dropRights(p.UID, p.GID); err != nil {
			return err
		}
		if err := keepOnly(p.Listeners); err != nil {
			return err
		}
		env := append(p.Env, listen.Env+"="+p.Listeners.sockets.Handover())
		err = unix.Exec(p.Program, p.Args, env)
		if errors.Is(err, unix.EACCES) {
			err = unix.Exec(fmt.Sprintf("/proc/self/fd/%d", binary), p.Args, env)
		}
		return &Error{Step: "executing " + p.Program, Err: err}
	})
}

// dropRights works on the calling thread alone: it is the one that execs, and
// the others end there (execve(2)).
func dropRights(uid, gid uint32) error {
	steps := []struct {
		name string
		do   func() error
	}{
		{"setting no_new_privs", func() error { return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }},
		{"turning core dumps off", func() error { return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) }},
		{"clearing the ambient capabilities", func() error {
			return unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
		}},
		{"clearing the bounding set", func() error { return dropBounding() }},
		{fmt.Sprintf("becoming user %d, group %d", uid, gid), func() error { return becomeUser(uid, gid) }},
		{"clearing the capabilities", capabilitySet{}.write},
		{"", denySyscalls},
	}
	for _, step := range steps {
		err := step.do()
		var own *Error
		switch {
		case err == nil:
		case errors.As(err, &own):
			return err
		default:
			return &Error{Step: step.name, Err: err}
		}
	}
	return nil
}

// dropBounding empties the thread's bounding set but for what is kept. Without
// CAP_SETPCAP it cannot be done, and is no loss: under no_new_privs nothing is
// gained by exec.
func dropBounding(keep ...uintptr) error {
	for c := range uintptr(64) {
		if slices.Contains(keep, c) {
			continue
		}
		switch err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err {
		case nil:
		case unix.EINVAL: // beyond the kernel's last capability
			return nil
		case unix.EPERM:
			return nil
		default:
			return err
		}
	}
	return nil
}

// becomeUser changes the ids of the thread. Who already is that user needs no
// right to become it.
func becomeUser(uid, gid uint32) error {
	// The raw calls act on this thread; the runtime's wrappers would act on all.
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 && !isAlready(uid, gid) {
		return fmt.Errorf("%w: CAP_SETGID is needed", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); errno != 0 {
		return fmt.Errorf("%w: CAP_SETGID is needed", errno)
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return fmt.Errorf("%w: CAP_SETUID is needed", errno)
	}
	return nil
}

func isAlready(uid, gid uint32) bool {
	return unix.Geteuid() == int(uid) && unix.Getegid() == int(gid)
}

// keepOnly lets no descriptor through the exec but the standard three and the
// listeners.
func keepOnly(listeners *Listeners) error {
	if err := unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC); err != nil {
		return &Error{Step: "closing descriptors", Err: err}
	}
	for name, fds := range listeners.sockets {
		for _, fd := range fds {
			if _, err := unix.FcntlInt(uintptr(fd), unix.F_SETFD, 0); err != nil {
				return &Error{Step: "handing over " + name, Err: err}
			}
		}
	}
	return nil
}
