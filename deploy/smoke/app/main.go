// App is the application of the pod that the smoke test plays: `app serve ADDR`
// answers HTTP, and GET /fetch?url=U with what it gets from U; `app pause` does
// nothing, as the pod's infrastructure container.
package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "pause":
		end := make(chan os.Signal, 1)
		signal.Notify(end, syscall.SIGTERM, syscall.SIGINT)
		<-end
	case len(os.Args) == 3 && os.Args[1] == "serve":
		http.HandleFunc("/fetch", fetch)
		http.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "the application answers") })
		fmt.Fprintln(os.Stderr, "app:", http.ListenAndServe(os.Args[2], nil))
		os.Exit(1)
	default:
		fmt.Fprintln(os.Stderr, "usage: app serve ADDR | app pause")
		os.Exit(64)
	}
}

// fetch gets a URL and hands its answer on.
func fetch(w http.ResponseWriter, r *http.Request) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(r.URL.Query().Get("url"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer resp.Body.Close()
	w.WriteHeader(resp.StatusCode)
	_, _ = io.Copy(w, resp.Body) // the client sees a short body
}
