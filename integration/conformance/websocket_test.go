package conformance

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/meshctl/meshctl/integration/built"
)

// chat is a WebSocket server. It sends every message back, and reports how each
// connection has ended.
type chat struct {
	*origin
	ends chan error
}

func newChat(t *testing.T) *chat {
	t.Helper()
	s := &chat{origin: listen(t), ends: make(chan error, 100)}
	mux := http.NewServeMux()
	mux.HandleFunc("/chat", s.echo)
	mux.HandleFunc("/bye", func(w http.ResponseWriter, r *http.Request) {
		if ws, err := websocket.Accept(w, r, nil); err == nil {
			ws.Close(websocket.StatusGoingAway, "closing time")
		}
	})
	mux.HandleFunc("/drop", func(w http.ResponseWriter, r *http.Request) {
		if ws, err := websocket.Accept(w, r, nil); err == nil {
			ws.CloseNow()
		}
	})
	mux.HandleFunc("/ticks", func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, nil)
		for i := 0; i < 8 && err == nil; i++ {
			time.Sleep(300 * time.Millisecond)
			err = ws.Write(r.Context(), websocket.MessageText, []byte("tick"))
		}
		if ws != nil {
			ws.Close(websocket.StatusNormalClosure, "")
		}
	})
	server := &http.Server{Handler: mux}
	done := make(chan error, 1)
	go func() { done <- server.Serve(s.origin) }()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return s
}

func (s *chat) echo(w http.ResponseWriter, r *http.Request) {
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{
		Subprotocols: []string{"till.v2"}, CompressionMode: websocket.CompressionContextTakeover,
	})
	if err != nil {
		return // Accept has answered the client
	}
	defer ws.CloseNow()
	ws.SetReadLimit(64 << 20)
	for {
		kind, msg, err := ws.Read(r.Context())
		if err == nil {
			err = ws.Write(r.Context(), kind, msg)
		}
		if err != nil {
			s.ends <- err
			return
		}
	}
}

// visit connects through p.
func visit(t *testing.T, p *built.Proxy, path string, opts *websocket.DialOptions) (*websocket.Conn, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*patience)
	t.Cleanup(cancel)
	ws, resp, err := websocket.Dial(ctx, "ws://"+p.In.String()+path, opts)
	if err != nil {
		t.Fatalf("%v (%v)", err, resp)
	}
	t.Cleanup(func() { ws.CloseNow() })
	ws.SetReadLimit(64 << 20)
	return ws, ctx
}

func TestWebSocketMessagesComeBackAsTheyWere(t *testing.T) {
	s := newChat(t)
	p := built.Start(t, program, s.addr)
	// Sizes around the steps of the length field (RFC 6455, 5.2).
	for _, compress := range []websocket.CompressionMode{websocket.CompressionDisabled, websocket.CompressionContextTakeover, websocket.CompressionNoContextTakeover} {
		ws, ctx := visit(t, p, "/chat", &websocket.DialOptions{CompressionMode: compress})
		for _, size := range []int{0, 1, 125, 126, 127, 65535, 65536, 5 << 20} {
			for _, kind := range []websocket.MessageType{websocket.MessageBinary, websocket.MessageText} {
				msg := noise(uint64(size), size)
				if kind == websocket.MessageText {
					msg = []byte(strings.Repeat("ß", size/2) + strings.Repeat("s", size%2))
				}
				got := make(chan error, 1)
				go func() { got <- answered(ctx, ws, kind, msg) }()
				if err := ws.Write(ctx, kind, msg); err != nil {
					t.Fatalf("writing %d bytes: %v", size, err)
				}
				if err := <-got; err != nil {
					t.Fatalf("%s of %d bytes, compression %d: %v", kind, size, compress, err)
				}
			}
		}
		ws.Close(websocket.StatusNormalClosure, "")
	}
}

func answered(ctx context.Context, ws *websocket.Conn, kind websocket.MessageType, want []byte) error {
	gotKind, got, err := ws.Read(ctx)
	if err != nil {
		return err
	}
	if gotKind != kind || !bytes.Equal(got, want) {
		return errors.New("another message has come back")
	}
	return nil
}

func TestAWebSocketMessageInFragmentsWithPingsBetween(t *testing.T) {
	s := newChat(t)
	p := built.Start(t, program, s.addr)
	ws, ctx := visit(t, p, "/chat", nil)
	// Reading is also what takes pongs in.
	got := make(chan error, 1)
	go func() { got <- answered(ctx, ws, websocket.MessageText, []byte(strings.Repeat("part", 1000))) }()
	w, err := ws.Writer(ctx, websocket.MessageText)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		if _, err := io.WriteString(w, "part"); err != nil {
			t.Fatal(err)
		}
		if i%250 == 0 {
			if err := ws.Ping(ctx); err != nil {
				t.Fatalf("ping: %v", err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	ws.Close(websocket.StatusNormalClosure, "")
}

func TestWebSocketCloseCodesReachTheOtherEnd(t *testing.T) {
	s := newChat(t)
	p := built.Start(t, program, s.addr)
	for _, code := range []websocket.StatusCode{1000, 1001, 1003, 1008, 1011, 3001, 4999} {
		ws, _ := visit(t, p, "/chat", nil)
		if err := ws.Close(code, "as the till says"); err != nil {
			t.Fatalf("closing with %d: %v", code, err)
		}
		var got websocket.CloseError
		if err := <-s.ends; !errors.As(err, &got) || got.Code != code || got.Reason != "as the till says" {
			t.Errorf("the server sees %v, want code %d", err, code)
		}
	}
	ws, ctx := visit(t, p, "/bye", nil)
	var got websocket.CloseError
	if _, _, err := ws.Read(ctx); !errors.As(err, &got) || got.Code != websocket.StatusGoingAway || got.Reason != "closing time" {
		t.Errorf("the client sees %v, want code 1001", err)
	}
}

func TestAWebSocketThatIsCutIsSeenAsCut(t *testing.T) {
	s := newChat(t)
	p := built.Start(t, program, s.addr)
	ws, ctx := visit(t, p, "/drop", nil)
	if _, _, err := ws.Read(ctx); err == nil || websocket.CloseStatus(err) != -1 {
		t.Errorf("the client sees %v, want an end without a close frame", err)
	}
	ws, _ = visit(t, p, "/chat", nil)
	ws.CloseNow()
	if err := <-s.ends; err == nil || websocket.CloseStatus(err) != -1 {
		t.Errorf("the server sees %v, want an end without a close frame", err)
	}
}

func TestAWebSocketMayBeIdleInOneDirectionOrBoth(t *testing.T) {
	t.Parallel()
	s := newChat(t)
	// Times that end idle TCP are not for what the observer knows.
	p := built.Start(t, program, s.addr, "--idle-timeout", "1s", "--half-close-timeout", "1s")
	ws, ctx := visit(t, p, "/ticks", nil)
	for i := range 8 {
		if err := answered(ctx, ws, websocket.MessageText, []byte("tick")); err != nil {
			t.Fatalf("after %d messages to a silent client: %v", i, err)
		}
	}
	ws, ctx = visit(t, p, "/chat", nil)
	time.Sleep(3 * time.Second)
	if err := ws.Write(ctx, websocket.MessageText, []byte("still")); err != nil {
		t.Fatal(err)
	}
	if err := answered(ctx, ws, websocket.MessageText, []byte("still")); err != nil {
		t.Errorf("after 3 s of silence: %v", err)
	}
}

func TestAWebSocketIsOneExchangeWithSwitchingProtocols(t *testing.T) {
	s := newChat(t)
	p := built.Start(t, program, s.addr)
	ws, ctx := visit(t, p, "/chat?till=%2F1", &websocket.DialOptions{Subprotocols: []string{"till.v2", "till.v1"}})
	if ws.Subprotocol() != "till.v2" {
		t.Errorf("the subprotocol is %q", ws.Subprotocol())
	}
	if err := ws.Write(ctx, websocket.MessageText, []byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	if err := answered(ctx, ws, websocket.MessageText, []byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	tunnel := false
	for _, c := range p.Connections(t) {
		tunnel = tunnel || c.Protocol == "http/1" && c.State == "tunnel"
	}
	if !tunnel {
		t.Errorf("no connection is a tunnel: %+v", p.Connections(t))
	}
	ws.Close(websocket.StatusNormalClosure, "")
	<-s.ends
	counted(t, p, 1, `status_code="101"`, `classification="success"`)
}

func TestAnUpgradeThatIsRefusedIsAnOrdinaryAnswer(t *testing.T) {
	p := built.Start(t, program, shop(t).addr)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ws, resp, err := websocket.Dial(ctx, "ws://"+p.In.String()+"/status/403", nil)
	if err == nil {
		ws.CloseNow()
		t.Fatal("the upgrade has succeeded")
	}
	if resp == nil || resp.StatusCode != http.StatusForbidden {
		t.Fatalf("the answer is %v, want 403", resp)
	}
	counted(t, p, 1, `status_code="403"`)
}
