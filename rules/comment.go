package rules

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Hash returns 12 hexadecimal digits that stand for the whole plan: the same
// for equal plans, on every machine, and in all likelihood for no other.
func (p Plan) Hash() string {
	sum := sha256.Sum256(p.canonical())
	return hex.EncodeToString(sum[:6])
}

// Equal reports whether p and q give the same rules.
func (p Plan) Equal(q Plan) bool { return string(p.canonical()) == string(q.canonical()) }

// The last rule of a chain carries the plan's hash, between these.
const (
	hashOpen  = " [plan "
	hashClose = "]"
)

// Comments returns what the kernel keeps beside each rule of c, a chain of p:
// the rule's ID and its reason, "loopback: connections inside ...". The last
// one ends in " [plan 0123456789ab]", so that a chain in the kernel tells which
// plan it is of. No comment is longer than 127 bytes or holds a quote or a
// backslash: nft(8) takes 128 at most, and iptables-save escapes those.
func (p Plan) Comments(c Chain) []string {
	out := make([]string, len(c.Rules))
	for i, r := range c.Rules {
		out[i] = r.ID + ": " + r.Why
	}
	if n := len(out); n > 0 {
		out[n-1] += hashOpen + p.Hash() + hashClose
	}
	return out
}

// ParseComment reads a comment that the kernel holds. ID is "" for one that
// Comments did not write; hash is "" for a rule that carries none.
func ParseComment(comment string) (id, hash string) {
	id, why, ok := strings.Cut(comment, ": ")
	if !ok || id == "" || strings.ContainsAny(id, " \t") {
		return "", ""
	}
	if i := strings.LastIndex(why, hashOpen); i >= 0 {
		hash, _ = strings.CutSuffix(why[i+len(hashOpen):], hashClose)
	}
	return id, hash
}
