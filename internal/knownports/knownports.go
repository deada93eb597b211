// Package knownports is the table of protocols that may need a word of
// configuration: which ports they use, who speaks first, what meshctl does with
// them unless told otherwise, and what to set. It is advice for people, and
// decides nothing: the default lists themselves belong to the proxy and the
// rules, and the tests here hold the table to them.
package knownports

import (
	"slices"
	"strconv"
	"strings"

	"github.com/meshctl/meshctl/internal/ports"
)

// Speaker is the side of a connection that sends the first byte.
type Speaker uint8

// The speakers.
const (
	Unsaid Speaker = iota // not said
	Client                // detection has something to read at once
	Server                // detection would wait: the reason why this table exists
	Either                // both may, or the client may stay silent for long
)

// String returns the word of the column FIRST.
func (s Speaker) String() string {
	switch s {
	case Client:
		return "client"
	case Server:
		return "server"
	case Either:
		return "either"
	default:
		return "unsaid"
	}
}

// MarshalText is String, for JSON.
func (s Speaker) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Default is what becomes of a port unless configuration says otherwise.
type Default uint8

// The defaults.
const (
	Unset    Default = iota // not said
	Detected                // the proxy tells the protocol from the first bytes
	Opaque                  // in the proxy's list of opaque ports
	Skipped                 // in the rules' lists of ports that go around the proxy
)

// String returns the word of the column DEFAULT.
func (d Default) String() string {
	switch d {
	case Detected:
		return "detected"
	case Opaque:
		return "opaque"
	case Skipped:
		return "skipped"
	default:
		return "unset"
	}
}

// MarshalText is String, for JSON.
func (d Default) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// Entry is one row: ports of one protocol that are treated alike.
type Entry struct {
	Name    string    // as the label "detected" has it where detection knows the protocol
	Title   string    // as people write it
	Aliases []string  // other names it is looked for by, lower case
	Ports   ports.Set // customary TCP ports; empty if it has none of its own
	First   Speaker   // who sends the first byte
	Default Default   // of all these ports
	Set     string    // what to set and where: a clause that fits a column
	Note    string    // why, in sentences
}

// Find returns the rows for a port number, or for a name, title or alias in any
// case. It returns none if the table has nothing to say about it.
func Find(query string) []Entry {
	query = strings.ToLower(strings.TrimSpace(query))
	matches := func(e Entry) bool {
		return e.Name == query || strings.ToLower(e.Title) == query || slices.Contains(e.Aliases, query)
	}
	if n, err := strconv.ParseUint(query, 10, 16); err == nil {
		matches = func(e Entry) bool { return e.Ports.Contains(uint16(n)) }
	}
	return slices.DeleteFunc(All(), func(e Entry) bool { return !matches(e) })
}
