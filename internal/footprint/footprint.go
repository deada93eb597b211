// Package footprint gives memory back that only the start of the program needed.
package footprint

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Trim unmaps the pages of the program's own file, code and constants, that are in
// memory: they stay in the page cache, which all processes of the program share,
// and come back by a minor fault when they are used again. The Go runtime walks
// tables of the whole binary when it starts, and package initializers touch most
// of the rest; of that a proxy at work needs a fraction. Pages that were written,
// as by relocation, are not touched.
func Trim() error {
	exe, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("finding the program's file: %w", err)
	}
	smaps, err := os.ReadFile("/proc/self/smaps")
	if err != nil {
		return fmt.Errorf("reading the program's mappings: %w", err)
	}
	for _, m := range clean(string(smaps), exe) {
		if _, _, e := unix.Syscall(unix.SYS_MADVISE, m.from, m.to-m.from, unix.MADV_DONTNEED); e != 0 {
			return fmt.Errorf("giving back the program's pages: %w", e)
		}
	}
	return nil
}

// mapping is a range of addresses.
type mapping struct{ from, to uintptr }

// clean returns the mappings of the file exe that cannot be written and hold no
// page that was, from the text of /proc/PID/smaps (proc_pid_smaps(5)).
func clean(smaps, exe string) (out []mapping) {
	var at mapping
	ours := false
	lines := bufio.NewScanner(strings.NewReader(smaps))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		switch {
		case len(f) == 0:
		case !strings.HasSuffix(f[0], ":"): // the line of the mapping itself
			at, ours = parse(f, exe)
		case ours && f[0] == "Anonymous:" && len(f) > 1 && f[1] == "0":
			out = append(out, at)
		}
	}
	return out
}

// parse reads the words of a mapping's line; ok: it is one of exe that cannot be
// written.
func parse(f []string, exe string) (m mapping, ok bool) {
	if len(f) < 6 || strings.Contains(f[1], "w") || strings.Join(f[5:], " ") != exe {
		return m, false
	}
	a, b, _ := strings.Cut(f[0], "-")
	from, err1 := strconv.ParseUint(a, 16, 64)
	to, err2 := strconv.ParseUint(b, 16, 64)
	return mapping{uintptr(from), uintptr(to)}, err1 == nil && err2 == nil && from < to
}
