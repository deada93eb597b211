package conformance

import (
	"context"
	"os"
	"os/exec"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/meshctl/meshctl/integration/built"
)

// interopCases are the gRPC project's interoperability cases that need no
// credentials.
func interopCases() map[string]func(context.Context, *grpc.ClientConn) {
	service := func(do func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption)) func(context.Context, *grpc.ClientConn) {
		return func(ctx context.Context, cc *grpc.ClientConn) { do(ctx, testgrpc.NewTestServiceClient(cc)) }
	}
	return map[string]func(context.Context, *grpc.ClientConn){
		"empty_unary":                 service(interop.DoEmptyUnaryCall),
		"large_unary":                 service(interop.DoLargeUnaryCall),
		"client_streaming":            service(interop.DoClientStreaming),
		"server_streaming":            service(interop.DoServerStreaming),
		"ping_pong":                   service(interop.DoPingPong),
		"empty_stream":                service(interop.DoEmptyStream),
		"timeout_on_sleeping_server":  service(interop.DoTimeoutOnSleepingServer),
		"cancel_after_begin":          service(interop.DoCancelAfterBegin),
		"cancel_after_first_response": service(interop.DoCancelAfterFirstResponse),
		"custom_metadata":             service(interop.DoCustomMetadata),
		"status_code_and_message":     service(interop.DoStatusCodeAndMessage),
		"special_status_message":      service(interop.DoSpecialStatusMessage),
		"unimplemented_method":        interop.DoUnimplementedMethod,
		"unimplemented_service": func(ctx context.Context, cc *grpc.ClientConn) {
			interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(cc))
		},
	}
}

const (
	interopCase   = "CONFORMANCE_INTEROP_CASE"   // set: this process is a client of TestGRPCInteroperates
	interopTarget = "CONFORMANCE_INTEROP_TARGET" // and this is whom it calls
)

// The cases end their process when they fail, so each has one of its own: this
// test binary again.
func TestGRPCInteroperates(t *testing.T) {
	cases := interopCases()
	if name := os.Getenv(interopCase); name != "" {
		runInterop(t, cases[name], os.Getenv(interopTarget))
		return
	}
	if len(cases) != 14 {
		t.Fatalf("there are %d cases, want 14", len(cases))
	}
	o := listen(t)
	server := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	done := make(chan error, 1)
	go func() { done <- server.Serve(o) }()
	t.Cleanup(func() {
		server.Stop()
		<-done
	})
	p := built.Start(t, program, o.addr)
	for name := range cases {
		t.Run(name, func(t *testing.T) {
			child := exec.Command(os.Args[0], "-test.run=^TestGRPCInteroperates$", "-test.count=1", "-test.timeout=60s")
			child.Env = append(os.Environ(), "MESHCTL_UNDER_TEST="+program, interopCase+"="+name, interopTarget+"="+p.In.String())
			if out, err := child.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
	s := p.Settled(t)
	if n := s.Sum("request_total"); n < 14 {
		t.Errorf("%v requests are counted for 14 cases", n)
	}
	if open := s.Sum("request_total") - s.Sum("response_total"); open != 0 {
		t.Errorf("%v requests have no end", open)
	}
	if n := s.Sum("meshctl_observer_lost_total"); n != 0 {
		t.Errorf("the observer has lost its way %v times", n)
	}
	if n := s.Sum("response_total", `grpc_status="12"`, `classification="success"`); n != 2 {
		t.Errorf("%v calls are counted as not implemented, want 2", n)
	}
}

func runInterop(t *testing.T, call func(context.Context, *grpc.ClientConn), target string) {
	if call == nil {
		t.Fatal("no such case")
	}
	cc, err := grpc.NewClient("passthrough:///"+target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	call(ctx, cc)
}
