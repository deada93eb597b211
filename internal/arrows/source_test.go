package arrows

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	root   = "../.."
	module = "github.com/meshctl/meshctl/"
)

// source is one Go file of the module, with its place relative to the root.
type source struct {
	file string // cmd/meshctl/main.go
	pkg  string // cmd/meshctl
	test bool
	ast  *ast.File
	fset *token.FileSet
	text []byte
}

// sources parses every Go file once, whatever its build tags say.
func sources(t *testing.T) []source {
	t.Helper()
	all, err := parseOnce()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 {
		t.Fatalf("only %d Go files found under %s: this test looks at nothing", len(all), root)
	}
	return all
}

var parseOnce = sync.OnceValues(func() ([]source, error) {
	var all []source
	fset := token.NewFileSet()
	err := eachFile(func(name string, text []byte) error {
		if path.Ext(name) != ".go" {
			return nil
		}
		f, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		all = append(all, source{
			file: name, pkg: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
			ast: f, fset: fset, text: text,
		})
		return nil
	})
	return all, err
})

// eachFile calls f with every file of the tree but those of git and of make.
func eachFile(f func(name string, text []byte) error) error {
	return filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(root, p)
		if d.IsDir() {
			if name == ".git" || name == "bin" {
				return filepath.SkipDir
			}
			return nil
		}
		if !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		return f(filepath.ToSlash(name), text)
	})
}

// imports are the import paths of a file.
func (s source) imports() []string {
	var out []string
	for _, spec := range s.ast.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err == nil {
			out = append(out, p)
		}
	}
	return out
}

// line is where n begins.
func (s source) line(n ast.Node) int { return s.fset.Position(n.Pos()).Line }
