// Package layout says where things stand in the text of a YAML file: where its
// documents begin and end, and where a field of one is. It decodes nothing, and
// knows nothing of Kubernetes.
package layout

import (
	"bytes"
	"strings"
)

// Part is a document of a file, or text between documents: markers, and comments
// and directives without a document. All parts together are the whole text.
type Part struct {
	Text    []byte // shares the file's memory
	Line    int    // of its first line, from 1
	Between bool
}

// Cut cuts a text at document markers (YAML 1.2, 9.1.2), which stand at the
// beginning of a line; nothing inside a document does.
func Cut(text []byte) []Part {
	var out []Part
	start, startLine, line := 0, 1, 0
	flush := func(end int) {
		if start < end {
			out = append(out, Part{text[start:end], startLine, blank(text[start:end])})
		}
	}
	for at := 0; at < len(text); {
		line++
		next := len(text)
		if i := bytes.IndexByte(text[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		if marker(text[at:next]) {
			flush(at)
			end, first := next, line+1
			if !blank(text[at+3 : next]) { // the document begins on the marker's line
				end, first = at+3, line
			}
			out = append(out, Part{text[at:end], line, true})
			start, startLine = end, first
		}
		at = next
	}
	flush(len(text))
	return out
}

func marker(line []byte) bool {
	if !bytes.HasPrefix(line, []byte("---")) && !bytes.HasPrefix(line, []byte("...")) {
		return false
	}
	return len(line) == 3 || strings.IndexByte(" \t\r\n", line[3]) >= 0
}

// blank reports whether there are only comments, directives and empty lines.
func blank(text []byte) bool {
	for l := range bytes.Lines(text) {
		if l = bytes.TrimSpace(l); len(l) > 0 && l[0] != '#' && l[0] != '%' {
			return false
		}
	}
	return true
}
