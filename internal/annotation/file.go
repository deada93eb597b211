package annotation

import (
	"fmt"
	"strconv"
	"strings"
)

// Entry is one annotation of a pod, with its line in the file.
type Entry struct {
	Key, Value string
	Line       int // from 1
}

// FileError says which line of a file is wrong, and why.
type FileError struct {
	Line   int
	Reason string
}

// Error names the line and the reason.
func (e *FileError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Reason) }

// ParseFile reads the form in which Kubernetes' downward API writes
// metadata.annotations into a volume: a line for each, key="value", the value
// quoted as Go quotes strings, so that no value reaches over a line's end. Empty
// lines are left out. A wrong line, or a key twice, gives a *FileError.
func ParseFile(text string) ([]Entry, error) {
	var out []Entry
	seen := map[string]int{}
	n := 0
	for line := range strings.Lines(text) {
		n++
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		key, quoted, ok := strings.Cut(line, "=")
		if !ok || key == "" {
			return nil, &FileError{n, `want key="value"`}
		}
		value, err := strconv.Unquote(quoted)
		if err != nil || quoted[0] != '"' {
			return nil, &FileError{n, fmt.Sprintf("the value of %s is not in double quotes", key)}
		}
		if before, twice := seen[key]; twice {
			return nil, &FileError{n, fmt.Sprintf("%s is on line %d already", key, before)}
		}
		seen[key] = n
		out = append(out, Entry{key, value, n})
	}
	return out, nil
}
