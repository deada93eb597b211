package annotation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/internal/ports"
)

// Ports is the value of opaque-ports. The zero value is the empty list, which
// means "no port", not "nothing said".
type Ports struct {
	Adds  bool      // a leading "+": adds to the default list, else replaces it
	Set   ports.Set // the numbers and ranges
	Names []string  // the names of ports of a Service or of containers
}

// ParsePorts reads a list of ports, ranges and names: "25,4444-4500,mysql". A
// wrong list gives a *ports.ParseError.
func ParsePorts(value string) (Ports, error) {
	const blanks = " \t"
	rest, adds := strings.CutPrefix(strings.TrimLeft(value, blanks), "+")
	out := Ports{Adds: adds}
	if !hasLetter(rest) {
		var err error
		out.Set, err = ports.Parse(rest)
		return out, err
	}
	items := strings.Split(rest, ",")
	for i, item := range items {
		name := strings.Trim(item, blanks)
		switch {
		case name == "" && i == len(items)-1: // one trailing comma is allowed
		case !hasLetter(name):
			set, err := ports.Parse(name)
			if wrong, ok := errors.AsType[*ports.ParseError](err); ok || name == "" {
				return Ports{}, misplaced(wrong, i+1)
			}
			out.Set = out.Set.Union(set)
		case !portName(name):
			return Ports{}, &ports.ParseError{Item: name, Place: i + 1, Reason: "neither a port nor the name of one"}
		default:
			out.Names = append(out.Names, name)
		}
	}
	return out, nil
}

// misplaced gives the error of one item its place in the whole list; nil stands
// for an empty item.
func misplaced(e *ports.ParseError, place int) *ports.ParseError {
	if e == nil {
		return &ports.ParseError{Place: place, Reason: "empty item"}
	}
	return &ports.ParseError{Item: e.Item, Place: place, Reason: e.Reason}
}

func hasLetter(s string) bool {
	return strings.ContainsFunc(s, func(r rune) bool { return r|0x20 >= 'a' && r|0x20 <= 'z' || r > 127 })
}

// portName follows RFC 6335, 5.1, as Kubernetes does.
func portName(s string) bool {
	if len(s) > 15 || strings.Contains(s, "--") || s[0] == '-' || s[len(s)-1] == '-' {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return r != '-' && (r < '0' || r > '9') && (r < 'a' || r > 'z')
	})
}

// Has reports whether a port, which its owner may have given a name, is in the
// list put over the default list def.
func (p Ports) Has(port uint16, name string, def ports.Set) bool {
	return p.Set.Contains(port) || name != "" && slices.Contains(p.Names, name) || p.Adds && def.Contains(port)
}

// Over returns the numbers of the list put over def; names become the ports
// that named says they are, if any.
func (p Ports) Over(def ports.Set, named func(name string) ports.Set) ports.Set {
	out := p.Set
	if p.Adds {
		out = out.Union(def)
	}
	for _, n := range p.Names {
		out = out.Union(named(n))
	}
	return out
}

// String returns the list as ParsePorts reads it.
func (p Ports) String() string {
	items := slices.Clone(p.Names)
	if !p.Set.Empty() {
		items = slices.Insert(items, 0, p.Set.String())
	}
	s := strings.Join(items, ",")
	if p.Adds {
		return fmt.Sprintf("+%s", s)
	}
	return s
}
