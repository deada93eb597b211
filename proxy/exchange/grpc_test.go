package exchange_test

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
)

// grpcServer is an endpoint that counts its calls.
type grpcServer struct {
	testgrpc.UnimplementedTestServiceServer
	*grpc.Server
	at    netip.AddrPort
	calls atomic.Int64
	open  atomic.Int64
}

// UnaryCall takes about a millisecond.
func (s *grpcServer) UnaryCall(context.Context, *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	s.calls.Add(1)
	s.open.Add(1)
	defer s.open.Add(-1)
	time.Sleep(time.Millisecond)
	return &testgrpc.SimpleResponse{}, nil
}

func serveGRPC(t *testing.T, s testgrpc.TestServiceServer) (*grpc.Server, netip.AddrPort) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(g, s)
	over := make(chan struct{})
	go func() { defer close(over); _ = g.Serve(ln) }()
	t.Cleanup(func() { g.Stop(); <-over })
	return g, ln.Addr().(*net.TCPAddr).AddrPort()
}

func (m *middle) stub() testgrpc.TestServiceClient {
	m.t.Helper()
	cc, err := grpc.NewClient(m.h2At, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { cc.Close() })
	return testgrpc.NewTestServiceClient(cc)
}

// callAll makes n unary calls over one connection and returns how many failed.
func callAll(t *testing.T, stub testgrpc.TestServiceClient, n, workers int) (failed int64) {
	var left, bad atomic.Int64
	left.Store(int64(n))
	var run sync.WaitGroup
	for range workers {
		run.Go(func() {
			for left.Add(-1) >= 0 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				if _, err := stub.UnaryCall(ctx, &testgrpc.SimpleRequest{}); err != nil {
					bad.Add(1)
					if c := status.Code(err); c != codes.Unavailable {
						t.Errorf("a call failed: %v", err)
					}
				}
				cancel()
			}
		})
	}
	run.Wait()
	return bad.Load()
}

func fourGRPC(t *testing.T) (all []*grpcServer, at []netip.AddrPort) {
	for range 4 {
		s := &grpcServer{}
		s.Server, s.at = serveGRPC(t, s)
		all, at = append(all, s), append(at, s.at)
	}
	return all, at
}

// The load of an endpoint remembers one slow answer for ten seconds, as it is to:
// where the machine stalls a server, three attempts are made.
func TestCallsOfOneConnectionAreSpreadEvenly(t *testing.T) {
	worst := 1.0
	for range 3 {
		if worst = min(worst, spread(t)); worst <= 0.1 {
			return
		}
	}
	t.Errorf("an endpoint is %.1f %% off its share", 100*worst)
}

// spread returns how far an endpoint is off its share.
func spread(t *testing.T) (worst float64) {
	all, at := fourGRPC(t)
	m := newMiddle(t, 0, at...)
	const n = 8000
	if failed := callAll(t, m.stub(), n, 16); failed != 0 {
		t.Errorf("%d calls failed", failed)
	}
	for i, s := range all {
		off := float64(s.calls.Load())*4/n - 1
		t.Logf("endpoint %d: %+.1f %%", i, 100*off)
		worst = max(worst, off, -off)
	}
	return worst
}

func TestAGRPCServerThatIsKilledTakesOnlyItsOwnCallsAlong(t *testing.T) {
	all, at := fourGRPC(t)
	m := newMiddle(t, 0, at...)
	under := make(chan int64, 1)
	go func() {
		for all[0].calls.Load() < 200 {
			time.Sleep(time.Millisecond)
		}
		under <- 2*all[0].open.Load() + 16
		all[0].Stop()
	}()
	failed := callAll(t, m.stub(), 6000, 16)
	if most := <-under; failed > most {
		t.Errorf("%d calls failed, at most %d were on it", failed, most)
	}
}

func TestAGRPCServerThatIsDrainedLosesNoCall(t *testing.T) {
	all, at := fourGRPC(t)
	m := newMiddle(t, 0, at...)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		for all[0].calls.Load() < 200 {
			time.Sleep(time.Millisecond)
		}
		all[0].GracefulStop()
	}()
	if failed := callAll(t, m.stub(), 6000, 16); failed != 0 {
		t.Errorf("%d calls failed", failed)
	}
	<-drained
}

// A case that fails ends the process, with the reason on standard error.
func TestGRPCInteroperatesThroughTheMiddle(t *testing.T) {
	_, at := serveGRPC(t, interop.NewTestServer())
	stub := newMiddle(t, 0, at).stub()
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
}
