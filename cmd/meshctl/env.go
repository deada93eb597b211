package main

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagsFromEnv gives every flag that the command line does not set the value of
// its environment variable: --skip-outbound-ports is MESHCTL_SKIP_OUTBOUND_PORTS.
// A variable that is set but empty is an empty value, as on the command line.
func flagsFromEnv(cmd *cobra.Command, _ []string) error {
	var failed error
	cmd.Flags().VisitAll(func(flag *pflag.Flag) {
		if flag.Changed || failed != nil || flag.Name == "help" || flag.Name == "version" {
			return
		}
		name := envName(flag.Name)
		value, set := os.LookupEnv(name)
		if !set {
			return
		}
		if err := cmd.Flags().Set(flag.Name, value); err != nil {
			failed = usagef("environment variable %s: %w", name, err)
		}
	})
	return failed
}

func envName(flag string) string {
	return "MESHCTL_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}
