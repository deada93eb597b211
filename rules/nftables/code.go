package nftables

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
)

// Code returns what the rule does, one line an expression, and its comment, in
// a form in which a rule read from the kernel equals the one that was sent:
// without handles, set IDs and the values of counters.
func Code(r *nftables.Rule) string {
	var b strings.Builder
	for _, e := range r.Exprs {
		switch e := e.(type) {
		case *expr.Counter:
			b.WriteString("counter\n")
		case *expr.Lookup:
			fmt.Fprintf(&b, "lookup %d in %s, invert %v, map %v\n", e.SourceRegister, e.SetName, e.Invert, e.IsDestRegSet)
		default:
			fmt.Fprintf(&b, "%T %+v\n", e, e)
		}
	}
	fmt.Fprintf(&b, "comment %s\n", Comment(r))
	return b.String()
}

// Comment returns the rule's comment, "" if it has none. rules.ParseComment
// takes it apart.
func Comment(r *nftables.Rule) string {
	if !wellFormed(r.UserData) {
		return ""
	}
	comment, _ := userdata.GetString(r.UserData, userdata.TypeComment)
	return comment
}

// wellFormed reports whether the lengths inside user data add up. Any process
// with the right may write anything there, and the library's reader trusts it.
func wellFormed(data []byte) bool {
	for len(data) > 0 {
		if len(data) < 2 || len(data) < 2+int(data[1]) {
			return false
		}
		data = data[2+int(data[1]):]
	}
	return true
}

// Counter returns the packets and bytes the rule has counted. Both are zero for
// a rule without a counter, which is none of ours.
func Counter(r *nftables.Rule) (packets, bytes uint64) {
	for _, e := range r.Exprs {
		if c, ok := e.(*expr.Counter); ok {
			return c.Packets, c.Bytes
		}
	}
	return 0, 0
}

// SameElements reports whether a set read from the kernel, in whatever order,
// holds what was sent.
func SameElements(sent, read []nftables.SetElement) bool {
	return slices.EqualFunc(ascending(sent), ascending(read), func(a, b nftables.SetElement) bool {
		return bytes.Equal(a.Key, b.Key) && a.IntervalEnd == b.IntervalEnd
	})
}

func ascending(elements []nftables.SetElement) []nftables.SetElement {
	sorted := slices.Clone(elements)
	slices.SortFunc(sorted, func(a, b nftables.SetElement) int { return bytes.Compare(a.Key, b.Key) })
	return sorted
}
