// Command app is what runs in the pods of kubenode's tests, and on the node:
//
//	app serve              HTTP on 8080; on 9000 a greeting at once, then an echo
//	app wait               does nothing until it is told to end
//	app get URL            one request, once; its answer
//	app probe URL|tcp:H:P  a connection that is kept open, and what the proxy says of it
//	app load URL           requests over old and new connections, until its input ends
//	app names ADDR URL TOKEN  a DNS server for the Services of an API server
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "app:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to be done
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		args = []string{"serve"}
	}
	switch command := args[0]; {
	case command == "serve":
		return serve(ctx)
	case command == "wait", command == "pause":
		<-ctx.Done()
		return nil
	case command == "get" && len(args) == 2:
		return get(args[1])
	case command == "probe" && len(args) == 2:
		return probe(args[1])
	case command == "load" && len(args) == 2:
		return load(args[1])
	case command == "names" && len(args) == 4:
		return names(args[1], args[2], args[3])
	}
	return fmt.Errorf("no such command: %q", args)
}

func get(url string) error {
	client := http.Client{Timeout: 20 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	fmt.Println(string(body))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return err
}
