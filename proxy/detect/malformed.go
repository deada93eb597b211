package detect

import "bytes"

// Malformed reports whether b, which is not HTTP by its first bytes, means to be
// HTTP/1: its first line begins with a registered method and names a version of
// HTTP, with an error somewhere, as in "GET  / HTTP/1.1" and "GET / http/1.1". Where
// requests are looked at one by one, such a line must not be a way around that:
// the answer is 400. No other protocol that is known begins so; RTSP, SIP and NATS
// use some of the methods.
func Malformed(b []byte) bool {
	b, p := skipEmptyLines(b)
	if p != whole {
		return false
	}
	line, _, _ := bytes.Cut(b, []byte{'\n'})
	return (containsFold(line, " http/") || bytes.Contains(line, []byte("\tHTTP/"))) && beginsWithMethod(line)
}

// beginsWithMethod reports whether a registered method and a blank are at the
// start of line, which is not empty.
func beginsWithMethod(line []byte) bool {
	if line[0] < 'A' || line[0] > 'Z' {
		return false
	}
	for _, m := range methods[line[0]-'A'] {
		if n := len(m); len(line) > n && string(line[:n]) == m && (line[n] == ' ' || line[n] == '\t') {
			return true
		}
	}
	return false
}
