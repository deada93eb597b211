// Package ports holds sets of TCP ports as flags and annotations write them.
// A Set is merged to sorted, disjoint intervals, so that one kernel interval
// set holds it whatever the user wrote. Names of ports and protocols are not
// its business.
package ports

import (
	"slices"
	"strconv"
	"strings"
)

// Range is a closed interval of ports, Lo <= Hi, both in 1..65535.
type Range struct{ Lo, Hi uint16 }

// String returns "80" for one port and "80-90" for more.
func (r Range) String() string {
	lo := strconv.Itoa(int(r.Lo))
	if r.Lo == r.Hi {
		return lo
	}
	return lo + "-" + strconv.Itoa(int(r.Hi))
}

// Set is a set of TCP ports. The zero value is the empty set. Sets are values:
// no method changes its receiver.
type Set struct {
	// ranges is sorted, and between two neighbours at least one port is missing.
	ranges []Range
}

// Of returns the set of the given ports. Port 0 is no TCP port and is left out.
func Of(list ...uint16) Set {
	ranges := make([]Range, 0, len(list))
	for _, p := range list {
		if p != 0 {
			ranges = append(ranges, Range{p, p})
		}
	}
	return merged(ranges)
}

// Contains reports whether port is in s.
func (s Set) Contains(port uint16) bool {
	_, ok := s.Find(port)
	return ok
}

// Find returns the interval of s that holds port, and false if none does.
func (s Set) Find(port uint16) (Range, bool) {
	i, ok := slices.BinarySearchFunc(s.ranges, port, func(r Range, p uint16) int {
		switch {
		case r.Hi < p:
			return -1
		case r.Lo > p:
			return 1
		}
		return 0
	})
	if !ok {
		return Range{}, false
	}
	return s.ranges[i], true
}

// Ranges returns the intervals of s: sorted, disjoint and not adjacent. The
// caller owns the slice.
func (s Set) Ranges() []Range { return slices.Clone(s.ranges) }

// Len returns how many ports s holds, 0 to 65535.
func (s Set) Len() int {
	n := 0
	for _, r := range s.ranges {
		n += int(r.Hi) - int(r.Lo) + 1
	}
	return n
}

// Empty reports whether s holds no port.
func (s Set) Empty() bool { return len(s.ranges) == 0 }

// Equal reports whether s and t hold the same ports.
func (s Set) Equal(t Set) bool { return slices.Equal(s.ranges, t.ranges) }

// Union returns the ports that are in s or in t.
func (s Set) Union(t Set) Set { return merged(slices.Concat(s.ranges, t.ranges)) }

// Intersect returns the ports that are in both s and t.
func (s Set) Intersect(t Set) Set {
	var out []Range
	for i, j := 0, 0; i < len(s.ranges) && j < len(t.ranges); {
		a, b := s.ranges[i], t.ranges[j]
		if lo, hi := max(a.Lo, b.Lo), min(a.Hi, b.Hi); lo <= hi {
			out = append(out, Range{lo, hi})
		}
		if a.Hi < b.Hi {
			i++
		} else {
			j++
		}
	}
	return Set{out}
}

// Overlaps reports whether s and t share a port.
func (s Set) Overlaps(t Set) bool { return !s.Intersect(t).Empty() }

// String returns the shortest list that Parse reads back as s, such as
// "25,587,4567-4568"; the empty set is "".
func (s Set) String() string {
	items := make([]string, len(s.ranges))
	for i, r := range s.ranges {
		items[i] = r.String()
	}
	return strings.Join(items, ",")
}

// MarshalText returns the bytes of String, so that JSON shows a set as people
// write it. It never fails.
func (s Set) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads what MarshalText wrote, by the grammar of Parse.
func (s *Set) UnmarshalText(text []byte) error {
	parsed, err := Parse(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// merged sorts ranges, joins those that overlap or touch, and takes the slice over.
func merged(ranges []Range) Set {
	slices.SortFunc(ranges, func(a, b Range) int { return int(a.Lo) - int(b.Lo) })
	var out []Range
	for _, r := range ranges {
		last := len(out) - 1
		// In int, because Hi+1 of 65535 does not fit a uint16.
		if last >= 0 && int(r.Lo) <= int(out[last].Hi)+1 {
			out[last].Hi = max(out[last].Hi, r.Hi)
			continue
		}
		out = append(out, r)
	}
	return Set{out}
}
