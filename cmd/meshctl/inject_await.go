package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/meshctl/meshctl/internal/listen"
)

// newAwaitCommand waits for the proxy. It is what postStart runs where the proxy
// is no native sidecar: the image has no shell and no curl.
func newAwaitCommand() *cobra.Command {
	var admin string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "await",
		Short: "Wait until a proxy is ready",
		Long: `Ask the proxy's /ready until it says yes: exit code 0, or 75 after --timeout. It is
the postStart hook of a proxy that is no native sidecar.`,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			addrs, err := listen.Parse(admin)
			if err != nil || len(addrs) != 1 {
				return usagef("--admin %q: want one address and port", admin)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return await(ctx, "http://"+addrs[0].String()+"/ready")
		},
	}
	cmd.Flags().StringVar(&admin, "admin", "127.0.0.1:4191", "the proxy's admin address")
	cmd.Flags().DurationVar(&timeout, "timeout", 2*time.Minute, "give up after this time")
	return cmd
}

// tryLaterError is an error that another attempt may not meet; exit code 75.
type tryLaterError struct{ error }

func (e tryLaterError) Unwrap() error { return e.error }
func (e tryLaterError) ExitCode() int { return exitTryAgain }

// await asks again and again until the answer is 200.
func await(ctx context.Context, url string) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	last := fmt.Errorf("it was never asked")
	for {
		if err := ready(ctx, client, url); err == nil {
			return nil
		} else if ctx.Err() == nil {
			last = err // not that of the end of the wait itself
		}
		select {
		case <-ctx.Done():
			return tryLaterError{fmt.Errorf("the proxy is not ready: %w", last)}
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func ready(ctx context.Context, client *http.Client, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 256))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, text)
	}
	return err
}
