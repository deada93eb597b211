package arrows

import (
	"slices"
	"strings"
	"testing"
)

// within reports whether pkg is room or a package inside it.
func within(pkg, room string) bool { return pkg == room || strings.HasPrefix(pkg, room+"/") }

func TestEveryImportIsAnArrowOfTheMap(t *testing.T) {
	allowed := map[[2]string]bool{}
	for _, a := range arrows {
		allowed[[2]string{a.from, a.to}] = false
	}
	present := map[string]bool{}
	for _, s := range sources(t) {
		present[s.pkg] = true
		for _, imp := range s.imports() {
			to, ours := strings.CutPrefix(imp, module)
			if !ours || s.test {
				continue
			}
			key := [2]string{s.pkg, to}
			if _, ok := allowed[key]; !ok {
				t.Errorf("%s imports %s: no such arrow; if it is right, add it to internal/arrows/table_test.go with its reason", s.file, to)
			}
			allowed[key] = true
		}
	}
	for key, used := range allowed {
		if !used && present[key[0]] && present[key[1]] {
			t.Errorf("the map has an arrow %s -> %s that no code makes", key[0], key[1])
		}
	}
}

func TestEveryPackageStandsOnAFloorAndImportsGoDown(t *testing.T) {
	for _, s := range sources(t) {
		if _, ok := floors[s.pkg]; !ok && !strings.Contains(s.pkg, "testdata") {
			t.Errorf("%s: package %s stands on no floor", s.file, s.pkg)
		}
	}
	for _, a := range arrows {
		up := floors[a.from] <= floors[a.to]
		if up && !within(a.from, a.to) && !within(a.to, a.from) {
			t.Errorf("%s (floor %d) -> %s (floor %d) does not go down", a.from, floors[a.from], a.to, floors[a.to])
		}
		if a.why == "" {
			t.Errorf("%s -> %s has no reason", a.from, a.to)
		}
	}
}

func TestTheTwoHalvesMeetOnlyInCmd(t *testing.T) {
	for _, s := range sources(t) {
		for _, imp := range s.imports() {
			to, ours := strings.CutPrefix(imp, module)
			if !ours {
				continue
			}
			kernel := within(s.pkg, "redirect") || within(s.pkg, "rules")
			if kernel && within(to, "proxy") || within(s.pkg, "proxy") && (within(to, "redirect") || within(to, "rules")) {
				t.Errorf("%s imports %s: redirect and proxy know nothing of each other", s.file, to)
			}
			stage := within(s.pkg, "proxy/detect") || within(s.pkg, "proxy/l4") || within(s.pkg, "proxy/l7")
			if stage && to == "proxy/metrics" {
				t.Errorf("%s imports %s: a stage returns what happened, one place records it", s.file, to)
			}
		}
	}
}

func TestRoomsMakeNoCircle(t *testing.T) {
	next := map[string][]string{}
	for _, s := range sources(t) {
		for _, imp := range s.imports() {
			if to, ours := strings.CutPrefix(imp, module); ours && !s.test && room(to) != room(s.pkg) {
				next[room(s.pkg)] = append(next[room(s.pkg)], room(to))
			}
		}
	}
	var walk func(r string, way []string)
	seen := map[string]bool{}
	walk = func(r string, way []string) {
		if slices.Contains(way, r) {
			t.Errorf("a circle of rooms: %s", strings.Join(append(way, r), " -> "))
			return
		}
		if seen[r] {
			return
		}
		for _, n := range next[r] {
			walk(n, append(slices.Clone(way), r))
		}
		seen[r] = true
	}
	for r := range next {
		walk(r, nil)
	}
}

// room is the part of the house a package belongs to: rules/nftables is of rules,
// proxy/discovery/kube of proxy/discovery.
func room(pkg string) string {
	parts := strings.Split(pkg, "/")
	if parts[0] == "rules" || len(parts) == 1 {
		return parts[0]
	}
	return parts[0] + "/" + parts[1]
}

func TestLibrariesStayWhereTheyBelong(t *testing.T) {
	for _, s := range sources(t) {
		if s.pkg == "internal/deps" {
			continue
		}
		for _, imp := range s.imports() {
			for _, lib := range libraries {
				named := imp == lib.path || strings.HasPrefix(imp, strings.TrimSuffix(lib.path, "/")+"/")
				if named && !s.test && !slices.ContainsFunc(lib.in, func(room string) bool { return within(s.pkg, room) }) {
					t.Errorf("%s imports %s, which is only for %v: %s", s.file, imp, lib.in, lib.why)
				}
			}
		}
	}
}
