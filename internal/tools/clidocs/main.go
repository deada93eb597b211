// Command clidocs prints the help of a program and of all its subcommands as one
// Markdown page:
//
//	clidocs bin/meshctl >docs/commands.md
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: clidocs PROGRAM")
		os.Exit(64)
	}
	if err := page(os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "clidocs:", err)
		os.Exit(1)
	}
}

func page(w io.Writer, program string) error {
	fmt.Fprint(w, "# Commands\n\nWritten by `make docs` from the program's own help. Every flag is also an environment variable: `--skip-outbound-ports`\nis `MESHCTL_SKIP_OUTBOUND_PORTS`.\n")
	return section(w, program, nil)
}

// section prints the command at path and, after it, its subcommands.
func section(w io.Writer, program string, path []string) error {
	out, err := exec.Command(program, append(path, "--help")...).Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return fmt.Errorf("asking for the help of %q: %w", strings.Join(path, " "), err)
	}
	help := strings.TrimSpace(string(out))
	name := strings.Join(append([]string{filepath.Base(program)}, path...), " ")
	fmt.Fprintf(w, "\n## %s\n\n```\n%s\n```\n", name, help)
	for _, sub := range subcommands(help) {
		if err := section(w, program, append(path[:len(path):len(path)], sub)); err != nil {
			return err
		}
	}
	return nil
}

// subcommands are the names listed in cobra's help, without help itself.
func subcommands(help string) []string {
	_, list, found := strings.Cut(help, "\nAvailable Commands:\n")
	if !found {
		return nil
	}
	var names []string
	for line := range strings.Lines(list) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(line, "  ") {
			break
		}
		if fields[0] != "help" {
			names = append(names, fields[0])
		}
	}
	return names
}
