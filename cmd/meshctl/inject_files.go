package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

	"github.com/meshctl/meshctl/inject/manifest"
)

// manifestFlags say where changed manifests go.
type manifestFlags struct{ output string }

func (m *manifestFlags) register(f *pflag.FlagSet) {
	f.StringVarP(&m.output, "output", "o", "", "directory to write the files to, under their names (default: all to standard output)")
}

// openManifests reads the files that args name: see readManifests.
func openManifests(args []string, stdin io.Reader) ([]*manifest.File, error) {
	texts, err := readManifests(args, stdin)
	if err != nil {
		return nil, err
	}
	out := make([]*manifest.File, len(texts))
	for i, t := range texts {
		if out[i], err = manifest.Parse(t.name, t.text); err != nil {
			return nil, inputError{err}
		}
	}
	return out, nil
}

func (m *manifestFlags) write(stdout io.Writer, files []*manifest.File) error {
	if m.output == "" {
		_, err := stdout.Write(joined(files))
		return err
	}
	if err := os.MkdirAll(m.output, 0o755); err != nil {
		return err
	}
	seen := map[string]string{}
	for _, f := range files {
		base := filepath.Base(f.Name)
		if f.Name == stdinName {
			base = "stdin.yaml"
		}
		if before, twice := seen[base]; twice {
			return usagef("--output: %s and %s have the same name", before, f.Name)
		}
		seen[base] = f.Name
	}
	var failed error
	for base, name := range seen {
		i := slices.IndexFunc(files, func(f *manifest.File) bool { return f.Name == name })
		failed = errors.Join(failed, os.WriteFile(filepath.Join(m.output, base), files[i].Bytes(), 0o644))
	}
	return failed
}

// joined is one text of several files, with document markers between them.
func joined(files []*manifest.File) []byte {
	var b bytes.Buffer
	for i, f := range files {
		text := f.Bytes()
		if i > 0 {
			if !bytes.HasSuffix(b.Bytes(), []byte("\n")) {
				b.WriteByte('\n')
			}
			if !bytes.HasPrefix(text, []byte("---")) {
				b.WriteString("---\n")
			}
		}
		b.Write(text)
	}
	return b.Bytes()
}
