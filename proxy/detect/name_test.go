package detect

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// named is one line of testdata/firstbytes/names.txt.
type named struct {
	where      string
	fromServer bool
	name       string // "" if unsure
	b          []byte
}

func readNamed(t testing.TB) []named {
	t.Helper()
	text, err := os.ReadFile("../../testdata/firstbytes/names.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []named
	for i, line := range strings.Split(string(text), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		f := strings.SplitN(line, " ", 3)
		b, err := strconv.Unquote(f[2])
		if err != nil {
			t.Fatalf("names.txt:%d: %v", i+1, err)
		}
		all = append(all, named{fmt.Sprintf("names.txt:%d", i+1), f[0] == "server", strings.Trim(f[1], "-"), []byte(b)})
	}
	return all
}

func TestOpaquePayloadsGetTheNamePeopleKnow(t *testing.T) {
	for _, n := range readNamed(t) {
		if got := Name(n.b, n.fromServer); got != n.name {
			t.Errorf("%s: Name(%q, %v) = %q, want %q", n.where, n.b, n.fromServer, got, n.name)
		}
	}
}

func TestEverySignatureHasAnExampleOfItsOwn(t *testing.T) {
	streams := readNamed(t)
	for fromServer, side := range map[bool][]signature{false: clientSide, true: serverSide} {
		for _, s := range side {
			if !slices.ContainsFunc(streams, func(n named) bool { return n.fromServer == fromServer && n.name == s.name }) {
				t.Errorf("no example of %s, from the server: %v", s.name, fromServer)
			}
		}
	}
}

func TestNoTwoSignaturesClaimTheSameBytes(t *testing.T) {
	for _, n := range readNamed(t) {
		side := slices.Concat(eitherSide, clientSide)
		if n.fromServer {
			side = slices.Concat(eitherSide, serverSide)
		}
		var claims []string
		for _, s := range side {
			if s.match(n.b) {
				claims = append(claims, s.name)
			}
		}
		if len(claims) > 1 {
			t.Errorf("%s: %q is claimed by %v", n.where, n.b, claims)
		}
	}
}

func TestCutPayloadIsNamedRightOrNotAtAll(t *testing.T) {
	for _, n := range readNamed(t) {
		for cut := range n.b {
			if got := Name(n.b[:cut], n.fromServer); got != "" && got != n.name {
				t.Errorf("%s: Name(%q) = %q, want %q or none", n.where, n.b[:cut], got, n.name)
			}
		}
	}
}

func TestNamesIsAClosedSetOfLabelValues(t *testing.T) {
	names := Names()
	for _, n := range names {
		if strings.Trim(n, "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			t.Errorf("%q is no word for a label", n)
		}
	}
	for _, n := range readNamed(t) {
		if n.name != "" && !slices.Contains(names, n.name) {
			t.Errorf("Names lacks %q", n.name)
		}
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(Names()) {
		t.Error("a name stands twice in Names")
	}
}

func TestNamingAllocatesNothing(t *testing.T) {
	for _, n := range readNamed(t) {
		if got := testing.AllocsPerRun(10, func() { Name(n.b, n.fromServer) }); got != 0 {
			t.Errorf("%s: %v allocations", n.where, got)
		}
	}
}
