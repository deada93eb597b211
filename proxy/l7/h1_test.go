package l7

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// record is a Recorder that keeps everything.
type record struct {
	Requests  []Request
	Responses []Response
}

func (r *record) Request(q Request)   { r.Requests = append(r.Requests, q) }
func (r *record) Response(p Response) { r.Responses = append(r.Responses, p) }

func TestARequestAndItsResponseAreCounted(t *testing.T) {
	var r record
	h := NewH1(&r)
	h.Feed(FromClient, []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), 1*time.Second)
	if h.Idle() {
		t.Error("idle with an open request")
	}
	h.Feed(FromServer, []byte("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"), 2*time.Second)
	h.Feed(FromServer, []byte("o"), 3*time.Second)
	h.Feed(FromServer, []byte("k"), 4*time.Second)
	want := record{
		Requests:  []Request{{Method: Get}},
		Responses: []Response{{Method: Get, Status: 200, GRPCStatus: -1, Success: true, HasLatency: true, Latency: 2 * time.Second, Total: 3 * time.Second}},
	}
	if d := cmp.Diff(want, r); d != "" {
		t.Error(d)
	}
	if !h.Idle() || h.Passive() {
		t.Errorf("idle %v, passive %v after the response", h.Idle(), h.Passive())
	}
}
