package main

import "errors"

func codeOf(err error) int {
	var c coded
	if errors.As(err, &c) {
		return c.ExitCode()
	}
	return exitError
}

func hintOf(err error) string {
	var h hinted
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}
