package redirect

import (
	"golang.org/x/sys/unix"
)

// capabilitySet is one thread's sets, 64 bits in two words (capget(2)).
type capabilitySet [2]unix.CapUserData

func readCapabilities() (set capabilitySet, err error) {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&head, &set[0]); err != nil {
		return set, &Error{Step: "reading capabilities", Err: err}
	}
	return set, nil
}

func (set capabilitySet) write() error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&head, &set[0]); err != nil {
		return &Error{Step: "changing capabilities", Err: err}
	}
	return nil
}

// raiseCapabilities puts everything that the calling thread is permitted into
// effect. The binary carries its file capabilities as permitted only, so that
// it can also be started where the bounding set lacks them: then nobody but the
// program itself raises them. The caller holds the thread.
func raiseCapabilities() error {
	set, err := readCapabilities()
	if err != nil {
		return err
	}
	if set[0].Effective == set[0].Permitted && set[1].Effective == set[1].Permitted {
		return nil
	}
	set[0].Effective, set[1].Effective = set[0].Permitted, set[1].Permitted
	return set.write()
}

// has tells whether the thread may use a capability that it is permitted.
func (set capabilitySet) has(capability int) bool {
	return set[capability/32].Permitted&(1<<(capability%32)) != 0
}

// ambientFor is what a child program must be given to have our rights: none for
// root, whose children have them anyway.
func ambientFor(capabilities ...int) []uintptr {
	if unix.Geteuid() == 0 {
		return nil
	}
	set, err := readCapabilities()
	if err != nil {
		return nil
	}
	var ambient []uintptr
	for _, c := range capabilities {
		if set.has(c) {
			ambient = append(ambient, uintptr(c))
		}
	}
	return ambient
}
