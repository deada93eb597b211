package main

import (
	"fmt"
	"os"
	"strings"
)

// The exit codes, BSD's sysexits(3) where it has one.
const (
	exitDone        = 0
	exitError       = 1
	exitFindings    = 2 // verify failed, drift
	exitUsage       = 64
	exitInput       = 65 // bad input file
	exitUnsupported = 69 // kernel or program lacks a feature
	exitTryAgain    = 75 // lock, busy
	exitPermission  = 77
)

// terminationLog is the file whose text Kubernetes shows as the reason why a
// container ended; only inside a pod it exists.
const terminationLog = "/dev/termination-log"

// usageError is a command line that cannot be obeyed; exit code 64.
type usageError struct {
	err  error
	hint string
}

func usagef(format string, args ...any) *usageError {
	return &usageError{err: fmt.Errorf(format, args...)}
}

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }
func (e *usageError) ExitCode() int { return exitUsage }
func (e *usageError) Hint() string {
	if e.hint != "" {
		return e.hint
	}
	return "see meshctl help"
}

// coded is an error that knows its exit code; hinted one that knows what to do
// about it. Commands may return either, or plain errors (exit code 1).
type coded interface{ ExitCode() int }
type hinted interface{ Hint() string }

// findings ends a command that worked and found something amiss; what it found
// is already on standard output.
type findings struct{ what string }

func (f findings) Error() string { return f.what }
func (f findings) ExitCode() int { return exitFindings }

// report prints what went wrong, in one line, and returns the exit code.
func report(err error) int {
	if err == nil {
		return exitDone
	}
	line := complaint(err)
	fmt.Fprintln(os.Stderr, line)
	// Not there outside of pods; nobody is left to hear of a failure here.
	if file, err := os.OpenFile(terminationLog, os.O_WRONLY|os.O_TRUNC, 0); err == nil {
		fmt.Fprintln(file, line)
		file.Close()
	}
	return codeOf(err)
}

func complaint(err error) string {
	line := "meshctl: " + err.Error()
	if hint := hintOf(err); hint != "" {
		line += " (" + hint + ")"
	}
	return strings.Join(strings.Fields(line), " ")
}
