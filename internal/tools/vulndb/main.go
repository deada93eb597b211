// Command vulndb lays out a folder of OSV files (the data/osv folder of the module
// golang.org/x/vulndb) as a database that govulncheck reads without a network:
//
//	vulndb OSVDIR OUTDIR && govulncheck -db file://OUTDIR ./...
//
// The layout is the one of https://go.dev/doc/security/vuln/database#api: ID/*.json
// as they are, and the three files of index/.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: vulndb OSVDIR OUTDIR")
		os.Exit(64)
	}
	ix, err := build(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "vulndb:", err)
		os.Exit(1)
	}
	fmt.Printf("vulndb: %d entries on %d modules\n", len(ix.Vulns), len(ix.Modules))
}

// entry is the part of an OSV file that the index is made from.
type entry struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Aliases  []string  `json:"aliases"`
	Affected []struct {
		Package struct {
			Name string `json:"name"`
		} `json:"package"`
		Ranges []struct {
			Events []struct {
				Fixed string `json:"fixed"`
			} `json:"events"`
		} `json:"ranges"`
	} `json:"affected"`
}

// build copies the entries of src into dst and writes the index beside them.
func build(src, dst string) (*index, error) {
	files, err := filepath.Glob(filepath.Join(src, "GO-*.json"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no GO-*.json in %s", src)
	}
	for _, dir := range []string{"ID", "index"} {
		if err := os.MkdirAll(filepath.Join(dst, dir), 0o755); err != nil {
			return nil, err
		}
	}
	ix := newIndex()
	for _, f := range files {
		e, raw, err := read(f)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", f, err)
		}
		if err := os.WriteFile(filepath.Join(dst, "ID", e.ID+".json"), raw, 0o644); err != nil {
			return nil, err
		}
		ix.add(e)
	}
	return ix, ix.write(filepath.Join(dst, "index"))
}

// read returns an entry and its whole text as compact JSON. An entry not yet
// published carries the zero time, which govulncheck refuses; it gets the first
// day of the database instead, in both.
func read(file string) (entry, []byte, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return entry{}, nil, err
	}
	var e entry
	if err := json.Unmarshal(raw, &e); err != nil {
		return entry{}, nil, err
	}
	var whole map[string]any
	if err := json.Unmarshal(raw, &whole); err != nil {
		return entry{}, nil, err
	}
	if e.Modified.Year() < 2021 {
		e.Modified = time.Date(2021, 1, 1, 0, 0, 0, 0, time.UTC)
		whole["modified"] = e.Modified
	}
	raw, err = json.Marshal(whole)
	return e, raw, err
}

// lastFixed is the last version named as a fix, which is what the index shows.
func lastFixed(e entry, affected int) string {
	fixed := ""
	for _, r := range e.Affected[affected].Ranges {
		for _, ev := range r.Events {
			if ev.Fixed != "" {
				fixed = ev.Fixed
			}
		}
	}
	return fixed
}

// sortedModules gives the modules in the order of their paths.
func sortedModules(m map[string]*module) []*module {
	out := make([]*module, 0, len(m))
	for _, mod := range m {
		out = append(out, mod)
	}
	slices.SortFunc(out, func(a, b *module) int { return strings.Compare(a.Path, b.Path) })
	return out
}
