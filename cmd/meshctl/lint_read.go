package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// manifestText is the text of a file, and what messages call it.
type manifestText struct {
	name string
	text []byte
}

// stdinName is what messages call standard input.
const stdinName = "stdin"

// readManifests reads files, standard input for "-", and of directories what looks
// like a manifest, in the order of their names.
func readManifests(args []string, in io.Reader) ([]manifestText, error) {
	var out []manifestText
	for _, arg := range args {
		if arg == "-" {
			text, err := io.ReadAll(in)
			if err != nil {
				return nil, fmt.Errorf("reading standard input: %w", err)
			}
			out = append(out, manifestText{stdinName, text})
			continue
		}
		found, err := readPath(arg)
		if err != nil {
			return nil, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func readPath(path string) ([]manifestText, error) {
	var out []manifestText
	err := filepath.WalkDir(path, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || name != path && !isManifest(name) {
			return nil
		}
		text, err := os.ReadFile(name)
		out = append(out, manifestText{name, text})
		return err
	})
	if err != nil {
		return nil, &unreadableInput{err}
	}
	if len(out) == 0 {
		return nil, usagef("%s: no *.yaml, *.yml or *.json in it", path)
	}
	return out, nil
}

func isManifest(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// unreadableInput is a file that cannot be read; exit code 65.
type unreadableInput struct{ err error }

func (e *unreadableInput) Error() string { return "reading manifests: " + e.err.Error() }
func (e *unreadableInput) Unwrap() error { return e.err }
func (e *unreadableInput) ExitCode() int { return exitInput }
