package demo

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/integration/built"
)

// reader ends a context once a line with some words was written.
type reader struct {
	words string
	end   context.CancelFunc
	all   strings.Builder
}

func (r *reader) Write(b []byte) (int, error) {
	if strings.Contains(string(b), r.words) {
		r.end()
	}
	return r.all.Write(b)
}

// descriptors are what the open ones stand for, each with how many there are.
// Pipes are left out: package net keeps some for its next splice(2).
func descriptors(t *testing.T) map[string]int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, fd := range open {
		// The folder itself was open for the listing, and is not any more.
		what, err := os.Readlink("/proc/self/fd/" + fd.Name())
		if kind, _, _ := strings.Cut(what, ":["); err == nil && kind != "pipe" {
			out[kind]++
		}
	}
	return out
}

// Wherever it is ended, Run gives back what it took: goroutines, descriptors
// and, with the descriptors, the namespaces and the processes in them.
func TestRunEndedMidwayGivesEverythingBack(t *testing.T) {
	if unix.Geteuid() != 0 {
		if os.Getenv("MESHCTL_NETNS") == "require" {
			t.Fatal("needs root, and MESHCTL_NETNS=require")
		}
		t.Skip("needs root")
	}
	program, remove, err := built.Compile()
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	defer goleak.VerifyNone(t)
	before := descriptors(t)
	for _, words := range []string{"$ POD=", "MySQL, port skipped", "--detect-timeout", "proxy: user", "MySQL, unknown port", "^C"} {
		t.Run("at "+words, func(t *testing.T) {
			ctx, end := context.WithTimeout(t.Context(), 20*time.Second)
			defer end()
			out := &reader{words: words, end: end}
			result, err := Run(ctx, Config{Program: program, Out: out})
			if !errors.Is(err, context.Canceled) || result.Failed > 0 {
				t.Errorf("%v, %d failed\n%s", err, result.Failed, &out.all)
			}
			if _, err := unix.Wait4(-1, nil, unix.WNOHANG, nil); !errors.Is(err, unix.ECHILD) {
				t.Errorf("a child is left: %v", err)
			}
		})
	}
	if diff := cmp.Diff(before, descriptors(t)); diff != "" {
		t.Errorf("open descriptors (-before +after):\n%s", diff)
	}
}

func TestRunSaysWhenThereIsNoProgram(t *testing.T) {
	if unix.Geteuid() != 0 {
		if os.Getenv("MESHCTL_NETNS") == "require" {
			t.Fatal("needs root, and MESHCTL_NETNS=require")
		}
		t.Skip("needs root")
	}
	_, err := Run(t.Context(), Config{Program: "/nonexistent/meshctl", Out: io.Discard})
	if !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), "starting meshctl: ") {
		t.Error(err)
	}
}
