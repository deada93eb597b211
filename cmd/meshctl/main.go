// Command meshctl redirects a network namespace's TCP traffic and proxies it.
package main

import (
	"os"
	"path/filepath"
)

// version is set by the linker (-X main.version=...).
var version = "dev"

func main() {
	os.Exit(run(argsFor(os.Args)))
}

// run executes one command line (without the program's name) and returns the
// exit code.
func run(args []string) int {
	root := newRootCommand()
	root.SetArgs(args)
	return report(root.Execute())
}

// argsFor lets the binary stand in the place of linkerd2-proxy-init: called by
// that name it writes the rules and exits.
func argsFor(argv []string) []string {
	if len(argv) == 0 {
		return nil
	}
	switch filepath.Base(argv[0]) {
	case "proxy-init", "linkerd2-proxy-init":
		return append([]string{"redirect", "--rules-only"}, argv[1:]...)
	}
	return argv[1:]
}
