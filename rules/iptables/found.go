package iptables

import (
	"fmt"
	"slices"
	"strings"

	"github.com/meshctl/meshctl/rules"
)

// Found is what a listing shows of ours in one family. The zero value: nothing.
type Found struct {
	Chains   []string // names of our chains, in the order listed
	Rules    []string // their rules, "-A MESHCTL_INBOUND ...", without counters
	Jumps    []Jump   // every rule outside our chains that calls one of them
	Counters []Counter
}

// Jump is a rule outside our chains that calls one of them.
type Jump struct {
	Hook  rules.Hook // of the chain that is called
	Line  string     // "-A PREROUTING ...", as listed, without counters
	First bool       // it is the first rule of its chain
}

// Counter is what a rule of the plan has counted, over all the lines it became.
type Counter struct {
	Rule           string // the rule's ID
	Packets, Bytes uint64
}

// Empty reports whether nothing of ours was found.
func (f Found) Empty() bool { return len(f.Chains) == 0 && len(f.Rules) == 0 && len(f.Jumps) == 0 }

// Hash returns the hash of the plan that wrote the chains, "" if none says so
// or two say different things.
func (f Found) Hash() string {
	hash := ""
	for _, line := range f.Rules {
		_, h := rules.ParseComment(commentOf(line))
		if h != "" && hash != "" && h != hash {
			return ""
		}
		hash = max(hash, h)
	}
	return hash
}

// Holds reports whether exactly the plan is in force in family fam: every chain
// and rule, called once and first, and nothing else of ours.
func (f Found) Holds(p rules.Plan, fam rules.Family) bool {
	if !slices.Contains(p.Families(), fam) {
		return f.Empty()
	}
	chains := p.Chains()
	if len(f.Chains) != len(chains) || len(f.Jumps) != len(chains) {
		return false
	}
	for _, c := range chains {
		if !f.hasChain(c.Hook) || !f.jumpInPlace(c.Hook) || !slices.Equal(f.rulesOf(c.Hook), chainLines(p, c, fam)) {
			return false
		}
	}
	return true
}

func (f Found) hasChain(h rules.Hook) bool { return slices.Contains(f.Chains, ChainName(h)) }

func (f Found) rulesOf(h rules.Hook) []string {
	var out []string
	for _, line := range f.Rules {
		if strings.HasPrefix(line, "-A "+ChainName(h)+" ") {
			out = append(out, line)
		}
	}
	return out
}

// jumpInPlace reports whether our chain is called once, as this package writes
// it, and first.
func (f Found) jumpInPlace(h rules.Hook) bool {
	n, good := 0, false
	for _, j := range f.Jumps {
		if j.Hook == h {
			n, good = n+1, j.First && j.Line == "-A "+Parent(h)+jump(h)
		}
	}
	return n == 1 && good
}

// Parse reads the output of "iptables-save", with or without -c. The output of
// "iptables -t nat -S" is read too when a line "*nat" is put before it. Chains
// and rules of others are passed over; our names count only in our tables.
func Parse(listing string) Found {
	r := reader{seen: map[string]bool{}}
	for line := range strings.Lines(listing) {
		r.line(strings.TrimRight(line, "\r\n"))
	}
	return r.found
}

// reader is the state between the lines of a listing.
type reader struct {
	found Found
	table string
	seen  map[string]bool // chains of this table that had a rule already
}

func (r *reader) line(s string) {
	switch {
	case strings.HasPrefix(s, "*"):
		r.table = s[1:]
		clear(r.seen)
	case strings.HasPrefix(s, ":"), strings.HasPrefix(s, "-N "):
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(s, ":"), "-N "), " ")
		if _, ok := r.hookOf(name); ok {
			r.found.Chains = append(r.found.Chains, name)
		}
	default:
		if packets, bytes, rule, ok := cutCounters(s); ok {
			r.rule(rule, packets, bytes)
		}
	}
}

func (r *reader) rule(line string, packets, bytes uint64) {
	chain, _, _ := strings.Cut(strings.TrimPrefix(line, "-A "), " ")
	first := !r.seen[chain]
	r.seen[chain] = true
	if _, ok := r.hookOf(chain); ok {
		r.found.Rules = append(r.found.Rules, line)
		r.count(line, packets, bytes)
		return
	}
	if h, ok := r.hookOf(called(line)); ok {
		r.found.Jumps = append(r.found.Jumps, Jump{h, line, first})
	}
}

func (r *reader) count(line string, packets, bytes uint64) {
	id, _ := rules.ParseComment(commentOf(line))
	if id == "" {
		return
	}
	i := slices.IndexFunc(r.found.Counters, func(c Counter) bool { return c.Rule == id })
	if i < 0 {
		r.found.Counters = append(r.found.Counters, Counter{Rule: id})
		i = len(r.found.Counters) - 1
	}
	r.found.Counters[i].Packets += packets
	r.found.Counters[i].Bytes += bytes
}

// hookOf returns the hook of our chain with that name in the current table.
func (r *reader) hookOf(name string) (rules.Hook, bool) {
	for _, h := range hooks() {
		if name == ChainName(h) && r.table == TableName(h) {
			return h, true
		}
	}
	return 0, false
}

// cutCounters takes "[12:720] -A ..." or "-A ..." apart; ok is false for lines
// that are no rules.
func cutCounters(s string) (packets, bytes uint64, rule string, ok bool) {
	rule = s
	if strings.HasPrefix(s, "[") {
		if _, err := fmt.Sscanf(s, "[%d:%d]", &packets, &bytes); err != nil {
			return 0, 0, "", false
		}
		_, rule, _ = strings.Cut(s, "] ")
	}
	return packets, bytes, rule, strings.HasPrefix(rule, "-A ")
}

// called returns the chain a rule jumps or goes to, "" if it says neither. The
// comment may hold anything, so the words inside quotes do not count.
func called(line string) string {
	words := strings.Fields(withoutQuoted(line))
	for i, w := range words[:max(0, len(words)-1)] {
		if w == "-j" || w == "-g" {
			return words[i+1]
		}
	}
	return ""
}

// withoutQuoted cuts out what stands between double quotes.
func withoutQuoted(line string) string {
	var b strings.Builder
	quoted, escaped := false, false
	for _, c := range line {
		switch {
		case escaped:
			escaped = false
		case c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case !quoted:
			b.WriteRune(c)
		}
	}
	return b.String()
}

// commentOf returns the comment of one of our rules, which holds no quotes.
func commentOf(line string) string {
	_, rest, _ := strings.Cut(line, ` --comment "`)
	comment, _, _ := strings.Cut(rest, `"`)
	return comment
}
