package servers

import (
	"net/http"
	"testing"

	"github.com/coder/websocket"
	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// GRPC starts the interoperability test server of grpc-go, without TLS.
func GRPC(t testing.TB, p Place) {
	t.Helper()
	s := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(s, interop.NewTestServer())
	l := p.Net.Listen(t, p.Addr)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-done; err != nil {
			t.Errorf("the gRPC server: %v", err)
		}
	})
}

// WebSocket starts a server that upgrades /echo and sends every message back.
func WebSocket(t testing.TB, p Place) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("GET /echo", echo)
	s := &http.Server{Handler: mux}
	l := p.Net.Listen(t, p.Addr)
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Close()
		if err := <-done; err != http.ErrServerClosed {
			t.Errorf("the WebSocket server: %v", err)
		}
	})
}

// echo returns messages until the client closes.
func echo(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, nil)
	if err != nil {
		return // Accept has answered the client
	}
	defer ws.CloseNow()
	for {
		kind, msg, err := ws.Read(r.Context())
		if err != nil {
			return
		}
		if err := ws.Write(r.Context(), kind, msg); err != nil {
			return
		}
	}
}
