package redirect

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"syscall"
)

// Class says what kind of failure an error is, so that a caller can choose an
// exit code. The zero value means "not said".
type Class uint8

// The classes.
const (
	Other       Class = iota + 1
	Usage             // the caller asked for something impossible
	Permission        // a capability or a right is missing
	TryAgain          // a lock is held, or time ran out: the same call may work later
	Unsupported       // the kernel or a program lacks what is needed
)

// String is the class in a word.
func (c Class) String() string {
	switch c {
	case Other:
		return "other"
	case Usage:
		return "usage"
	case Permission:
		return "permission"
	case TryAgain:
		return "try again"
	case Unsupported:
		return "unsupported"
	}
	return "not said"
}

// Error is a failure at the kernel's edge.
type Error struct {
	Backend string // "nftables", "iptables-nft", "iptables-legacy"; empty outside of one
	Step    string // what was being done: "writing the rules"
	Rule    string // the rule at which it failed, where that is known
	Class   Class  // zero: judged from Err
	Err     error
}

// Error is `backend: step: rule: cause`, without what is unknown.
func (e *Error) Error() string {
	parts := make([]string, 0, 4)
	for _, part := range []string{e.Backend, e.Step, e.Rule} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	text := e.Err.Error()
	if e.Backend != "" && ClassOf(e) == Permission && !strings.Contains(text, "CAP_") {
		text += ": CAP_NET_ADMIN is needed"
	}
	return strings.Join(append(parts, text), ": ")
}

// Unwrap is the cause.
func (e *Error) Unwrap() error { return e.Err }

// ClassOf judges an error: by the class that an Error in its chain names, else
// by the kernel's error number, else Other. It is zero for nil.
func ClassOf(err error) Class {
	if err == nil {
		return 0
	}
	var said *Error
	if errors.As(err, &said) && said.Class != 0 {
		return said.Class
	}
	var place *NamespaceError
	if errors.As(err, &place) && place.Err == nil {
		return Usage
	}
	return classOfCause(err)
}

func classOfCause(err error) Class {
	switch {
	case isAny(err, syscall.EPERM, syscall.EACCES):
		return Permission
	case isAny(err, context.DeadlineExceeded, syscall.EBUSY, syscall.EAGAIN, syscall.ETIMEDOUT, syscall.EADDRINUSE):
		return TryAgain
	case isAny(err, syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT, syscall.EAFNOSUPPORT, syscall.ENOSYS, exec.ErrNotFound):
		return Unsupported
	}
	return Other
}

func isAny(err error, targets ...error) bool {
	for _, target := range targets {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}
