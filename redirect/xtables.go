package redirect

import (
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/rules"
)

// The calls that x_tables answers on any socket of a family (linux/netfilter_
// ipv4/ip_tables.h and its IPv6 twin; the numbers are the same).
const (
	getInfo    = 64 // IPT_SO_GET_INFO
	getEntries = 65 // IPT_SO_GET_ENTRIES
)

// tableNameLen is XT_TABLE_MAXNAMELEN.
const tableNameLen = 32

// legacyTables are the x_tables tables that exist for a family in the calling
// thread's namespace. To ask for any other would make it.
func legacyTables(f rules.Family) ([]string, error) {
	path := "/proc/thread-self/net/ip_tables_names"
	if f == rules.IPv6 {
		path = "/proc/thread-self/net/ip6_tables_names"
	}
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // the kernel has no x_tables, or not for this family
	}
	if err != nil {
		return nil, err
	}
	return strings.Fields(string(text)), nil
}

// legacyChains are the names of the user-defined chains of an x_tables table
// that exists. No program is run for it.
func legacyChains(f rules.Family, table string) ([]string, error) {
	domain, level := unix.AF_INET, unix.SOL_IP
	if f == rules.IPv6 {
		domain, level = unix.AF_INET6, unix.SOL_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	for {
		blob, err := tableBlob(fd, level, table)
		if errors.Is(err, unix.EAGAIN) {
			continue // its size changed in between
		}
		if err != nil {
			return nil, err
		}
		return chainNames(blob, f), nil
	}
}

// tableBlob is the table as the kernel keeps it: its entries in a row.
func tableBlob(fd, level int, table string) ([]byte, error) {
	// struct ipt_getinfo: the name, then valid_hooks, hook_entry[5],
	// underflow[5], num_entries and size.
	const sizeAt = tableNameLen + 4*(1+5+5+1)
	info := make([]byte, sizeAt+4)
	copy(info[:tableNameLen-1], table)
	if err := getsockopt(fd, level, getInfo, info); err != nil {
		return nil, err
	}
	size := binary.NativeEndian.Uint32(info[sizeAt:])
	// struct ipt_get_entries: the name, the size, then the entries, aligned.
	const entriesAt = tableNameLen + 8
	entries := make([]byte, entriesAt+int(size))
	copy(entries[:tableNameLen-1], table)
	binary.NativeEndian.PutUint32(entries[tableNameLen:], size)
	if err := getsockopt(fd, level, getEntries, entries); err != nil {
		return nil, err
	}
	return entries[entriesAt:], nil
}

func getsockopt(fd, level, option int, b []byte) error {
	length := uint32(len(b))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), uintptr(option),
		uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// chainNames walks the entries: a user-defined chain begins with an entry whose
// target is called ERROR and carries the chain's name. The last ERROR entry
// ends the table and names no chain.
func chainNames(blob []byte, f rules.Family) []string {
	// Where struct ipt_entry (ip6t_entry) has target_offset and next_offset.
	offsets := 88
	if f == rules.IPv6 {
		offsets = 140
	}
	var names []string
	for len(blob) >= offsets+4 {
		target := int(binary.NativeEndian.Uint16(blob[offsets:]))
		next := int(binary.NativeEndian.Uint16(blob[offsets+2:]))
		if next == 0 || next > len(blob) {
			break
		}
		if name, ok := errorTarget(blob[:next], target); ok && name != "ERROR" {
			names = append(names, name)
		}
		blob = blob[next:]
	}
	return names
}

// errorTarget reads struct xt_error_target: target_size, name[29], revision and
// then errorname[30].
func errorTarget(entry []byte, at int) (name string, ok bool) {
	const nameAt, errorAt, errorLen = 2, 32, 30
	if at+errorAt+errorLen > len(entry) || cString(entry[at+nameAt:at+errorAt-1]) != "ERROR" {
		return "", false
	}
	return cString(entry[at+errorAt : at+errorAt+errorLen]), true
}

func cString(b []byte) string {
	name, _, _ := strings.Cut(string(b), "\x00")
	return name
}
