package arrows

import (
	"bytes"
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// The longest a file and a function may get, in lines.
const (
	maxFile     = 500
	maxTestFile = 800
	maxFunc     = 80
)

func TestFilesAndFunctionsStayShort(t *testing.T) {
	for _, s := range sources(t) {
		limit := maxFile
		if s.test {
			limit = maxTestFile
		}
		if n := bytes.Count(s.text, []byte("\n")); n > limit {
			t.Errorf("%s has %d lines, more than %d", s.file, n, limit)
		}
		for _, d := range s.ast.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || s.test {
				continue
			}
			if n := s.fset.Position(f.End()).Line - s.line(f) + 1; n > maxFunc {
				t.Errorf("%s:%d: %s has %d lines, more than %d", s.file, s.line(f), f.Name.Name, n, maxFunc)
			}
		}
	}
}

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	said := map[string]int{}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		lines := 0
		if s.ast.Doc != nil {
			lines = strings.Count(strings.TrimSpace(s.ast.Doc.Text()), "\n") + 1
			if said[s.pkg] > 0 {
				t.Errorf("%s: package %s has a second package comment", s.file, s.pkg)
			}
		}
		if lines > 15 {
			t.Errorf("%s: the package comment has %d lines, more than 15", s.file, lines)
		}
		said[s.pkg] += lines
	}
	for pkg, lines := range said {
		if lines == 0 && pkg != "internal/deps" {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
}

func TestEveryExportedNameIsDocumented(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		for _, d := range s.ast.Decls {
			for _, name := range undocumented(d) {
				t.Errorf("%s:%d: %s has no comment", s.file, s.line(name), name.Name)
			}
		}
	}
}

// undocumented gives the exported names of a declaration without a comment of
// their own or of their group.
func undocumented(d ast.Decl) []*ast.Ident {
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) && !wellKnown(d) {
			return []*ast.Ident{d.Name}
		}
	case *ast.GenDecl:
		var out []*ast.Ident
		for _, spec := range d.Specs {
			out = append(out, undocumentedSpec(d, spec)...)
		}
		return out
	}
	return nil
}

func undocumentedSpec(d *ast.GenDecl, spec ast.Spec) []*ast.Ident {
	switch spec := spec.(type) {
	case *ast.TypeSpec:
		if spec.Name.IsExported() && spec.Doc == nil && d.Doc == nil {
			return []*ast.Ident{spec.Name}
		}
	case *ast.ValueSpec:
		var out []*ast.Ident
		for _, n := range spec.Names {
			if n.IsExported() && spec.Doc == nil && spec.Comment == nil && d.Doc == nil {
				out = append(out, n)
			}
		}
		return out
	}
	return nil
}

// exportedReceiver reports whether a method can be called from outside.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	if star, ok := typ.(*ast.StarExpr); ok {
		typ = star.X
	}
	id, ok := typ.(*ast.Ident)
	return ok && id.IsExported()
}

// wellKnown methods mean what the standard library says.
func wellKnown(d *ast.FuncDecl) bool {
	switch d.Name.Name {
	case "String", "Error", "Unwrap", "Is", "MarshalJSON", "UnmarshalJSON", "MarshalText", "UnmarshalText":
		return d.Recv != nil
	}
	return false
}

func TestNothingHappensAtStartUp(t *testing.T) {
	for _, s := range sources(t) {
		for _, d := range s.ast.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
				t.Errorf("%s:%d: init()", s.file, s.line(f))
			}
		}
	}
}

func TestAddressesAreNetip(t *testing.T) {
	old := map[string]bool{"IP": true, "IPNet": true, "IPMask": true, "IPAddr": true, "ParseIP": true, "ParseCIDR": true}
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		ast.Inspect(s.ast, func(n ast.Node) bool {
			sel, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "net" && old[sel.Sel.Name] {
				t.Errorf("%s:%d: net.%s: addresses are netip here", s.file, s.line(sel), sel.Sel.Name)
			}
			return true
		})
	}
}

func TestNamesSayWhatAThingIs(t *testing.T) {
	for _, s := range sources(t) {
		ast.Inspect(s.ast, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			for _, empty := range []string{"Manager", "Util", "Helper", "Common", "Impl"} {
				if strings.Contains(spec.Name.Name, empty) {
					t.Errorf("%s:%d: type %s: %q says nothing", s.file, s.line(spec), spec.Name.Name, empty)
				}
			}
			return true
		})
	}
}

func TestNoLockOrCounterIsPackageState(t *testing.T) {
	for _, s := range sources(t) {
		if s.test || within(s.pkg, "integration") { // a test run is one process: serial numbers for names are its own
			continue
		}
		for _, d := range s.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, spec := range g.Specs {
				if v := spec.(*ast.ValueSpec); mutable(v) {
					t.Errorf("%s:%d: package state %s", s.file, s.line(v), v.Names[0].Name)
				}
			}
		}
	}
}

// mutable recognises the usual shapes of package state: something of sync or
// sync/atomic, and maps made empty to be filled later.
func mutable(v *ast.ValueSpec) bool {
	if sel, ok := v.Type.(*ast.SelectorExpr); ok {
		if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "sync" || x.Name == "atomic") {
			return true
		}
	}
	for _, val := range v.Values {
		call, ok := val.(*ast.CallExpr)
		if !ok {
			continue
		}
		if id, ok := call.Fun.(*ast.Ident); ok && id.Name == "make" {
			return true
		}
	}
	return false
}
