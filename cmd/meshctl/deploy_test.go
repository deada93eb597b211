package main

import (
	"os"
	"regexp"
	"testing"
)

// The Deployment of deploy/ gives the controller flags that there are.
func TestTheDeployedControllerHasFlagsThatThereAre(t *testing.T) {
	text, err := os.ReadFile("../../deploy/base/controller.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, m := range regexp.MustCompile(`(?m)^ +- (--[a-z-]+.*)$`).FindAllSubmatch(text, -1) {
		args = append(args, string(m[1]))
	}
	if len(args) < 8 {
		t.Fatalf("only %q", args)
	}
	cmd, rest, err := newRootCommand().Find([]string{"controller"})
	if err != nil || len(rest) > 0 {
		t.Fatalf("%v, %v", rest, err)
	}
	if err := cmd.ParseFlags(args); err != nil {
		t.Error(err)
	}
}
