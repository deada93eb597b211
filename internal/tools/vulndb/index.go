package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"
)

// index is the content of the three files of index/.
type index struct {
	DB struct {
		Modified time.Time `json:"modified"`
	}
	Vulns   []vuln
	Modules []*module

	byPath map[string]*module
}

// vuln is one line of vulns.json, and with Fixed one of a module's in modules.json.
type vuln struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Aliases  []string  `json:"aliases,omitempty"`
	Fixed    string    `json:"fixed,omitempty"`
}

// module is one line of modules.json.
type module struct {
	Path  string `json:"path"`
	Vulns []vuln `json:"vulns"`
}

func newIndex() *index { return &index{byPath: map[string]*module{}} }

// add puts an entry into the index under each module that it affects.
func (ix *index) add(e entry) {
	if e.Modified.After(ix.DB.Modified) {
		ix.DB.Modified = e.Modified
	}
	ix.Vulns = append(ix.Vulns, vuln{ID: e.ID, Modified: e.Modified, Aliases: e.Aliases})
	for i, a := range e.Affected {
		m := ix.byPath[a.Package.Name]
		if m == nil {
			m = &module{Path: a.Package.Name}
			ix.byPath[a.Package.Name] = m
		}
		m.Vulns = append(m.Vulns, vuln{ID: e.ID, Modified: e.Modified, Fixed: lastFixed(e, i)})
	}
}

// write puts db.json, vulns.json and modules.json into dir.
func (ix *index) write(dir string) error {
	ix.Modules = sortedModules(ix.byPath)
	for name, v := range map[string]any{"db": ix.DB, "vulns": ix.Vulns, "modules": ix.Modules} {
		raw, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name+".json"), raw, 0o644); err != nil {
			return err
		}
	}
	return nil
}
