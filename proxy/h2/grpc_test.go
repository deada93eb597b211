package h2_test

import (
	"context"
	"net"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/meshctl/meshctl/proxy/h2"
)

// A case that fails ends the process, with the reason on standard error.
func TestGRPCInteroperates(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	over := make(chan error, 1)
	go func() { over <- server.Serve(ln) }()
	t.Cleanup(func() { server.Stop(); <-over })
	_, _, at := serveMiddle(t, ln.Addr().(*net.TCPAddr).AddrPort(), h2.Config{})
	cc, err := grpc.NewClient(at.String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	stub := testgrpc.NewTestServiceClient(cc)
	for name, do := range map[string]func(context.Context, testgrpc.TestServiceClient, ...grpc.CallOption){
		"empty unary":                 interop.DoEmptyUnaryCall,
		"large unary":                 interop.DoLargeUnaryCall,
		"client streaming":            interop.DoClientStreaming,
		"server streaming":            interop.DoServerStreaming,
		"ping pong":                   interop.DoPingPong,
		"empty stream":                interop.DoEmptyStream,
		"timeout on sleeping server":  interop.DoTimeoutOnSleepingServer,
		"cancel after begin":          interop.DoCancelAfterBegin,
		"cancel after first response": interop.DoCancelAfterFirstResponse,
		"custom metadata":             interop.DoCustomMetadata,
		"status code and message":     interop.DoStatusCodeAndMessage,
		"special status message":      interop.DoSpecialStatusMessage,
	} {
		t.Run(name, func(t *testing.T) {
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				do(ctx, stub)
				cancel()
			}
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	interop.DoUnimplementedMethod(ctx, cc)
	interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(cc))
}
