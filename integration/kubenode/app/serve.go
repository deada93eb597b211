package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

// answer is what the server says of a request.
type answer struct {
	Host   string `json:"host"`             // the pod's name
	Remote string `json:"remote"`           // who has connected
	Client string `json:"client,omitempty"` // l5d-client-id
}

// serve answers until it is told to end; then it lets requests come for as long as
// others may not have heard of it, as applications in Kubernetes do.
func serve(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	greeter, err := net.Listen("tcp", ":9000")
	if err != nil {
		return err
	}
	go greet(greeter, "hello from "+host+"\n")
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(2 * time.Millisecond) // requests are on their way when the pod ends
		_ = json.NewEncoder(w).Encode(answer{Host: host, Remote: r.RemoteAddr, Client: r.Header.Get("l5d-client-id")})
	})
	server := &http.Server{Addr: ":8080", Handler: mux, ReadHeaderTimeout: time.Minute}
	ended := make(chan error, 1)
	go func() { ended <- server.ListenAndServe() }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	ctx, stop := context.WithTimeout(context.Background(), 20*time.Second)
	defer stop()
	return server.Shutdown(ctx)
}

func greet(l net.Listener, text string) {
	for {
		c, err := l.Accept()
		if err != nil {
			fmt.Fprintln(os.Stderr, "app:", err)
			return
		}
		go func() {
			defer c.Close()
			if _, err := io.WriteString(c, text); err == nil {
				_, _ = io.Copy(c, c) // until the client has enough
			}
		}()
	}
}
