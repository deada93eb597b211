package ports

import (
	"fmt"
	"strings"
)

// ParseError says which item of a port list is wrong, and why.
type ParseError struct {
	Item   string // the item as it was written, without the blanks around it
	Place  int    // its place in the list, from 1
	Reason string // what is wrong with it
}

// Error names the item, its place and the reason.
func (e *ParseError) Error() string {
	return fmt.Sprintf("port list: item %d %q: %s", e.Place, e.Item, e.Reason)
}

// Parse reads a comma list of ports and ranges: "25,587,4444-4500,5000:5010".
// Blanks around items and one trailing comma are allowed; the empty list is the
// empty set. Doubled and overlapping items are merged. A wrong list gives a
// *ParseError and no set.
func Parse(list string) (Set, error) { return grammar{colon: true}.parse(list) }

// ParseOver is Parse for a flag that has a default: a list with a leading "+"
// adds to def, any other list replaces it.
func ParseOver(list string, def Set) (Set, error) {
	rest, adds := strings.CutPrefix(strings.TrimLeft(list, blanks), "+")
	set, err := Parse(rest)
	if err != nil {
		return Set{}, err
	}
	if adds {
		set = set.Union(def)
	}
	return set, nil
}

// ParseStrict reads the narrower lists of linkerd2-proxy-init: ranges are
// written with "-" only, and nothing adds to a default.
func ParseStrict(list string) (Set, error) { return grammar{}.parse(list) }

// blanks may stand around items. A line break may not: it is more likely a
// quoting accident than a wish.
const blanks = " \t"

// grammar is what the readers differ in.
type grammar struct {
	colon bool // "a:b" is a range too
}

func (g grammar) parse(list string) (Set, error) {
	if strings.Trim(list, blanks) == "" {
		return Set{}, nil
	}
	items := strings.Split(list, ",")
	if n := len(items); n > 1 && strings.Trim(items[n-1], blanks) == "" {
		items = items[:n-1]
	}
	ranges := make([]Range, 0, len(items))
	for i, item := range items {
		item = strings.Trim(item, blanks)
		r, reason := g.item(item)
		if reason != "" {
			return Set{}, &ParseError{Item: item, Place: i + 1, Reason: reason}
		}
		ranges = append(ranges, r)
	}
	return merged(ranges), nil
}

// item reads one port or range; reason is "" when it is a good one.
func (g grammar) item(s string) (r Range, reason string) {
	if s == "" {
		return Range{}, "empty item"
	}
	lo, hi, isRange := g.cut(s)
	if isRange && (lo == "" || hi == "") {
		return Range{}, "a range needs two ports"
	}
	if r.Lo, reason = number(lo); reason != "" {
		return Range{}, reason
	}
	if r.Hi, reason = number(hi); reason != "" {
		return Range{}, reason
	}
	if r.Lo > r.Hi {
		return Range{}, "the range runs backwards"
	}
	return r, ""
}

// cut splits a range at its first separator; a single port is both ends.
func (g grammar) cut(s string) (lo, hi string, isRange bool) {
	separators := "-"
	if g.colon {
		separators = "-:"
	}
	if i := strings.IndexAny(s, separators); i >= 0 {
		return s[:i], s[i+1:], true
	}
	return s, s, false
}

// number reads a port. It is stricter than strconv: ASCII digits only, no sign,
// no base prefix and no leading zero, which some readers take for octal.
func number(s string) (port uint16, reason string) {
	n := 0
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, "not a port number"
		}
		if n = n*10 + int(c-'0'); n > 65535 {
			return 0, "ports end at 65535"
		}
	}
	switch {
	case n == 0:
		return 0, "ports start at 1"
	case s[0] == '0':
		return 0, "a port has no leading zero"
	}
	return uint16(n), ""
}
