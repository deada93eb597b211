package conformance

import (
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/http2"

	"github.com/meshctl/meshctl/integration/built"
)

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

const message = "\x00\x00\x00\x00\x02hi" // a gRPC message of two bytes

var grpcHead = []string{":status", "200", "content-type", "application/grpc"}

// steps does several things on one stream.
func steps(all ...reply) reply {
	return func(f *framed, stream uint32) error {
		for _, do := range all {
			if err := do(f, stream); err != nil {
				return err
			}
		}
		return nil
	}
}

func head(end bool, pairs ...string) reply {
	return func(f *framed, stream uint32) error { return f.headers(stream, end, pairs...) }
}

func body(end bool, b string) reply {
	return func(f *framed, stream uint32) error { return f.data(stream, end, b) }
}

func reset(code http2.ErrCode) reply {
	return func(f *framed, stream uint32) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.WriteRSTStream(stream, code)
	}
}

// TestGRPCIsJudgedByItsOwnStatus sends each answer five times and looks for its
// series of response_total.
func TestGRPCIsJudgedByItsOwnStatus(t *testing.T) {
	const each = 5
	for _, v := range []struct {
		name   string
		answer reply
		want   []string // labels
	}{
		{"the only block says PERMISSION_DENIED", head(true, append(grpcHead, "grpc-status", "7")...),
			[]string{`grpc_status="7"`, `classification="failure"`, `status_code="200"`}},
		{"trailers say OK", steps(head(false, grpcHead...), body(false, message), head(true, "grpc-status", "0")),
			[]string{`grpc_status="0"`, `classification="success"`}},
		{"trailers say UNAVAILABLE", steps(head(false, grpcHead...), body(false, message), head(true, "grpc-status", "14", "grpc-message", "later")),
			[]string{`grpc_status="14"`, `classification="failure"`}},
		{"trailers say NOT_FOUND", steps(head(false, grpcHead...), head(true, "grpc-status", "5")),
			[]string{`grpc_status="5"`, `classification="success"`}},
		{"there are no trailers", steps(head(false, grpcHead...), body(true, message)),
			[]string{`grpc_status="missing"`, `classification="failure"`}},
		{"the status is no number", head(true, append(grpcHead, "grpc-status", "bad")...),
			[]string{`grpc_status="2"`, `classification="failure"`}},
		{"it is not gRPC", steps(head(false, ":status", "200", "content-type", "text/plain"), body(true, "hi")),
			[]string{`status_code="200"`, `classification="success"`}},
		{"it is not gRPC and fails", head(true, ":status", "503"),
			[]string{`status_code="503"`, `classification="failure"`}},
		{"it is not gRPC and has trailers", steps(head(false, ":status", "200"), body(false, "hi"), head(true, "grpc-status", "13")),
			[]string{`status_code="200"`, `classification="success"`}},
		{"the server resets the stream", steps(head(false, grpcHead...), reset(http2.ErrCodeInternal)),
			[]string{`error="reset"`, `classification="failure"`}},
		{"the server does not take the stream", reset(http2.ErrCodeRefusedStream),
			[]string{`error="refused"`, `classification="failure"`}},
	} {
		t.Run(v.name, func(t *testing.T) {
			p := built.Start(t, program, answering(t, map[string]reply{"/t.Till/Sell": v.answer}).addr)
			f := clientEnd(t, dial(t, p.In))
			for i := range uint32(each) {
				if err := f.request(2*i+1, true, "/t.Till/Sell", "content-type", "application/grpc", "te", "trailers"); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := f.outcomes(each); err != nil {
				t.Fatal(err)
			}
			counted(t, p, each, v.want...)
			missing := 0.0
			if v.want[0] == `grpc_status="missing"` {
				missing = each
			}
			if n := p.Sample(t).Sum("meshctl_grpc_status_missing_total"); n != missing {
				t.Errorf("%v statuses are counted as missing, want %v", n, missing)
			}
		})
	}
}

// TestAnAnswerBeforeTheRequestEndsKeepsItsStatus: RFC 9113, 8.1 lets a server
// answer early and reset the stream with NO_ERROR; the client keeps the answer.
// Other streams of the connection are not touched.
func TestAnAnswerBeforeTheRequestEndsKeepsItsStatus(t *testing.T) {
	const others = 19
	early := steps(head(false, grpcHead...), head(true, "grpc-status", "8", "grpc-message", "quota"), reset(http2.ErrCodeNo))
	whole := steps(head(false, grpcHead...), body(false, message), func(f *framed, stream uint32) error {
		time.Sleep(10 * time.Millisecond)
		return f.headers(stream, true, "grpc-status", "0")
	})
	p := built.Start(t, program, answering(t, map[string]reply{"/t.Till/Upload": early, "/t.Till/Sell": whole}).addr)
	f := clientEnd(t, dial(t, p.In))
	if err := f.request(1, false, "/t.Till/Upload", "content-type", "application/grpc", "te", "trailers"); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	over := make(chan struct{})
	group.Go(func() { // a client that goes on sending until it is told
		for {
			select {
			case <-over:
				return
			case <-time.After(5 * time.Millisecond):
				if err := f.data(1, false, message); err != nil {
					t.Errorf("sending on: %v", err)
					return
				}
			}
		}
	})
	for i := range uint32(others) {
		if err := f.request(2*i+3, true, "/t.Till/Sell", "content-type", "application/grpc"); err != nil {
			t.Fatal(err)
		}
	}
	all, err := f.outcomes(1 + others)
	close(over)
	group.Wait()
	if err != nil {
		t.Fatal(err)
	}
	first := map[string]string{all[1].Fields["grpc-status"]: all[1].Fields["grpc-message"]}
	if diff := cmp.Diff(map[string]string{"8": "quota"}, first); diff != "" || all[1].Reset != "" && all[1].Reset != "NO_ERROR" {
		t.Errorf("the early answer has come as %+v: %s", all[1], diff)
	}
	for i := range uint32(others) {
		if o := all[2*i+3]; o == nil || o.Fields["grpc-status"] != "0" || o.Bytes != len(message) {
			t.Errorf("stream %d has ended as %+v", 2*i+3, o)
		}
	}
	counted(t, p, 1+others, `status_code="200"`)
	s := p.Sample(t)
	for status, want := range map[string]float64{"8": 1, "0": others} {
		if n := s.Sum("response_total", fmt.Sprintf("grpc_status=%q", status)); n != want {
			t.Errorf("%v answers have status %s, want %v", n, status, want)
		}
	}
}
