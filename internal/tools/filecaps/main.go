// Filecaps gives a file the capabilities that meshctl's image needs, NET_ADMIN and
// NET_RAW in the permitted set (`setcap cap_net_admin,cap_net_raw=p FILE`), and
// reads them back. It is for build stages that have Go and no setcap.
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// attribute is where the kernel keeps the capabilities of a file; capabilities(7),
// "File capability extended attribute versioning".
const attribute = "security.capability"

// revision2 is VFS_CAP_REVISION_2 of linux/capability.h, without the effective flag:
// the program raises what it needs itself.
const revision2 = 0x02000000

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: filecaps FILE")
		os.Exit(64)
	}
	if err := set(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "filecaps:", err)
		os.Exit(1)
	}
}

// set writes the attribute, and reads it back, because some file systems take it and
// keep nothing.
func set(file string) error {
	want := value()
	if err := unix.Setxattr(file, attribute, want, 0); err != nil {
		return fmt.Errorf("giving %s its capabilities (needs CAP_SETFCAP): %w", file, err)
	}
	got := make([]byte, 64)
	n, err := unix.Getxattr(file, attribute, got)
	if err != nil {
		return fmt.Errorf("reading the capabilities of %s: %w", file, err)
	}
	if !bytes.Equal(got[:n], want) {
		return fmt.Errorf("%s has the capabilities %x instead of %x", file, got[:n], want)
	}
	return nil
}

// value is a struct vfs_cap_data: the revision, then permitted and inheritable of
// capabilities 0 to 31 and of 32 to 63, all little endian.
func value() []byte {
	var v [20]byte
	binary.LittleEndian.PutUint32(v[0:], revision2)
	binary.LittleEndian.PutUint32(v[4:], 1<<unix.CAP_NET_ADMIN|1<<unix.CAP_NET_RAW)
	return v[:]
}
