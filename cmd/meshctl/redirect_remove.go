package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/redirect"
)

func newRemoveCommand() *cobra.Command {
	p := &placeFlags{}
	cmd := &cobra.Command{
		Use:   "remove",
		Short: "Take our rules out, whichever backend wrote them",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			choice, _, done, err := p.pick(cmd)
			if err != nil {
				return err
			}
			defer done()
			removed, err := choice.Remove(cmd.Context())
			if err != nil {
				return err
			}
			if !removed {
				fmt.Fprintln(cmd.OutOrStdout(), "there are no rules of ours")
				return nil
			}
			fmt.Fprintln(cmd.OutOrStdout(), "rules removed")
			return nil
		},
	}
	p.register(cmd.Flags())
	return cmd
}

// newWatchCommand is what the watcher runs; `redirect` starts it.
func newWatchCommand() *cobra.Command {
	var plan, backend, level, format string
	cmd := &cobra.Command{
		Use: "watch", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			log, err := newLogger(cmd.ErrOrStderr(), level, format)
			if err != nil {
				return err
			}
			return redirect.Watch(log, func(ctx context.Context) error { return removeOwn(ctx, log, plan, backend) })
		},
	}
	f := cmd.Flags()
	f.StringVar(&plan, "plan", "", "hash of the plan whose rules are to be removed")
	f.StringVar(&backend, "backend", "auto", "backend that wrote them")
	f.StringVar(&level, "log-level", "info", "as of redirect")
	f.StringVar(&format, "log-format", "plain", "as of redirect")
	return cmd
}

// removeOwn removes the rules that this run wrote, and no others that have come
// in their place.
func removeOwn(ctx context.Context, log *slog.Logger, plan, backend string) error {
	kind, err := redirect.ParseKind(backend)
	if err != nil {
		return usagef("--backend: %w", err)
	}
	ns, err := redirect.CurrentNamespace()
	if err != nil {
		return err
	}
	defer ns.Close()
	choice, err := redirect.Pick(ctx, ns, redirect.Options{Backend: kind})
	if err != nil {
		return err
	}
	state, err := choice.Backend.Read(ctx)
	if err != nil {
		return err
	}
	if !state.Present || state.Hash != plan {
		log.Info("rules of another run are left in place", "plan", state.Hash)
		return nil
	}
	if _, err := choice.Backend.Remove(ctx); err != nil {
		return err
	}
	log.Info("rules removed", "backend", backend, "plan", plan)
	return nil
}
