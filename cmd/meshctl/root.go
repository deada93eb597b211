package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

// newRootCommand is the whole command line. Each line of AddCommand belongs to
// the file named behind it.
func newRootCommand() *cobra.Command {
	root := &cobra.Command{
		Use:               "meshctl",
		Short:             "Redirect a network namespace's TCP traffic through a protocol-detecting proxy",
		Version:           version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{HiddenDefaultCmd: true},
		Args:              cobra.ArbitraryArgs,
		RunE:              helpOrUnknown,
		PersistentPreRunE: flagsFromEnv,
	}
	root.AddCommand(newRedirectCommand())                                        // redirect.go
	root.AddCommand(newProxyCommand())                                           // proxy.go
	root.AddCommand(newExplainCommand())                                         // explain.go
	root.AddCommand(newPortsCommand())                                           // ports.go
	root.AddCommand(newCheckCommand())                                           // check.go
	root.AddCommand(newIdentityCommand())                                        // identity.go
	root.AddCommand(newInjectCommand(), newUninjectCommand(), newAwaitCommand()) // inject.go, inject_await.go
	root.AddCommand(newLintCommand())                                            // lint.go
	root.AddCommand(newControllerCommand())                                      // controller.go
	root.AddCommand(newDemoCommand())                                            // demo.go
	root.SetFlagErrorFunc(flagError)
	usageFromArgs(root)
	return root
}

func helpOrUnknown(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return cmd.Help()
	}
	err := usagef("unknown command %q", args[0])
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		err.hint = fmt.Sprintf("did you mean %q?", near[0])
	}
	return err
}

func flagError(_ *cobra.Command, err error) error { return &usageError{err: err} }

// usageFromArgs makes every command's complaint about its arguments a usage
// error, so that all of them exit alike.
func usageFromArgs(cmd *cobra.Command) {
	if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			if err := check(cmd, args); err != nil {
				return &usageError{err: err}
			}
			return nil
		}
	}
	for _, sub := range cmd.Commands() {
		usageFromArgs(sub)
	}
}
