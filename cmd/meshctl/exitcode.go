package main

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/redirect"
)

func codeOf(err error) int {
	var c coded
	if errors.As(err, &c) {
		return c.ExitCode()
	}
	switch redirect.ClassOf(err) {
	case redirect.Usage:
		return exitUsage
	case redirect.Permission:
		return exitPermission
	case redirect.TryAgain:
		return exitTryAgain
	case redirect.Unsupported:
		return exitUnsupported
	}
	return exitError
}

// hintOf says what a person can do about an error, where that is known.
func hintOf(err error) string {
	var h hinted
	if errors.As(err, &h) {
		return h.Hint()
	}
	var mesh *redirect.OtherMeshError
	if errors.As(err, &mesh) {
		return "--force writes beside it"
	}
	if errors.Is(err, unix.EADDRINUSE) {
		return "does another meshctl run there?"
	}
	switch redirect.ClassOf(err) {
	case redirect.Permission:
		return "run it as root, or with CAP_NET_ADMIN"
	case redirect.TryAgain:
		return "try again, or with a longer --wait or --timeout"
	case redirect.Unsupported:
		return "see --backend"
	}
	return ""
}
