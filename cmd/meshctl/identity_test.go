package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/meshctl/meshctl/proxy/identity/authority"
)

// The scripts run command lines in this process: `meshctl` that succeed, and
// `exits CODE` that end with a code. What a command complains of is on stderr as
// main prints it.
func TestIdentityScripts(t *testing.T) {
	withoutSettings(t)
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "identity"),
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"meshctl": func(ts *testscript.TestScript, neg bool, args []string) { scripted(ts, exitDone, args) },
			"exits": func(ts *testscript.TestScript, neg bool, args []string) {
				code, err := strconv.Atoi(args[0])
				ts.Check(err)
				scripted(ts, code, args[1:])
			},
			"outdated": outdated,
			"mode":     mode,
		},
	})
}

func scripted(ts *testscript.TestScript, want int, args []string) {
	root := newRootCommand()
	root.SetArgs(args)
	root.SetOut(ts.Stdout())
	root.SetErr(ts.Stderr())
	err := root.Execute()
	if err != nil {
		fmt.Fprintln(ts.Stderr(), complaint(err))
	}
	code := exitDone
	if err != nil {
		code = codeOf(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, want %d: %v", code, want, err)
	}
}

// outdated CA OUT OFFSET issues a certificate that is valid for an hour from OFFSET on.
func outdated(ts *testscript.TestScript, _ bool, args []string) {
	ca, err := authority.Load(args[0])
	ts.Check(err)
	offset, err := time.ParseDuration(args[2])
	ts.Check(err)
	now := time.Now()
	leaf, err := ca.Issue(authority.Request{Names: []string{"db.example"}, Life: time.Hour, NotBefore: now.Add(offset)}, now)
	ts.Check(err)
	ts.Check(leaf.Write(args[1]))
}

// mode OCTAL FILE looks at a file's permissions.
func mode(ts *testscript.TestScript, _ bool, args []string) {
	info, err := os.Stat(args[1])
	ts.Check(err)
	if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[0] {
		ts.Fatalf("%s has the mode %s, want %s", args[1], got, args[0])
	}
}
