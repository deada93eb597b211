package annotation

import "strings"

// maxTypos is how many letters a key may be off its suggestion: two typing
// errors, or a word's ending left out.
const maxTypos = 3

// injected is a key of the injector, spelt as it should be.
const injected = "linkerd.io/proxy-version"

// Suggest returns the known key that key was probably meant to be. It returns
// "" for a known key, for one that is far from all of them, and for one outside
// Linkerd's namespaces that does not look as if it was meant to be inside.
func Suggest(key string) string {
	domain, name, ok := strings.Cut(key, "/")
	if !ok || key == injected || !nearDomain(domain) {
		return ""
	}
	best, least := "", maxTypos+1
	for _, k := range known {
		_, right, _ := strings.Cut(k.Key, "/")
		switch d := distance(name, right); {
		case k.Key == key:
			return ""
		case d < least && d*2 < len(right): // "uid" is not far from anything
			best, least = k.Key, d
		}
	}
	return best
}

// nearDomain reports whether a key's domain is Linkerd's, or nearly.
func nearDomain(domain string) bool {
	for _, d := range []string{strings.TrimSuffix(Prefix, "/"), strings.TrimSuffix(AlphaPrefix, "/"), "linkerd.io"} {
		if n := len(domain) - len(d); n >= -2 && n <= 2 && distance(domain, d) <= 2 {
			return true
		}
	}
	return false
}

// distance counts the letters to insert, delete, replace, or swap with their
// neighbour, that make a into b (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
