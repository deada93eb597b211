package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/meshctl/meshctl/internal/demo"
)

func newDemoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show on real connections what meshctl does (root; some seconds)",
		Long: `Make two network namespaces, run meshctl in one of them as a user would, connect
real clients to real servers, and tell of each connection when its first byte
came and how it was told apart. Nothing outside of the namespaces is touched, and
nothing is left of them. The exit code is 2 when a connection did not come out as
expected.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return showDemo(cmd.OutOrStdout()) },
	}
	cmd.AddCommand(&cobra.Command{
		Use: "guard", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return demo.Guard() },
	})
	return cmd
}

// needsRoot is a command that was called by somebody who may not run it.
type needsRoot struct{ hint string }

func (needsRoot) Error() string  { return "making network namespaces needs root" }
func (needsRoot) ExitCode() int  { return exitPermission }
func (n needsRoot) Hint() string { return n.hint }

func showDemo(out io.Writer) error {
	if unix.Geteuid() != 0 {
		return needsRoot{"sudo meshctl demo"}
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding the own program: %w", err)
	}
	ctx, _, stop := signals()
	defer stop()
	result, err := demo.Run(ctx, demo.Config{Program: program, Out: out, Color: coloured(out)})
	switch {
	case err != nil && ctx.Err() != nil:
		return errors.New("interrupted; nothing is left behind")
	case err != nil:
		return err
	case result.Failed > 0:
		return findings{fmt.Sprintf("%d of %d connections did not come out as expected", result.Failed, result.Connections)}
	}
	return nil
}

// coloured reports whether out is a terminal whose user has not said no
// (no-color.org).
func coloured(out io.Writer) bool {
	file, ok := out.(*os.File)
	if !ok || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
