package kube

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// firstPause is the pause after the first failure; it doubles up to Config.Retry.
const firstPause = 800 * time.Millisecond

// kindState is how it goes with the watch of one kind.
type kindState struct {
	read bool      // its objects are in the queue, or it has none
	lost time.Time // since when it is not watched; zero: it is
	err  error     // why
	said bool      // that it is lost, in the log
}

// follow watches one kind until ctx ends: it waits for the kind to be there, and
// begins again when it has gone.
func (s *Source) follow(ctx context.Context, k kind) {
	again := firstPause
	for ctx.Err() == nil {
		pause := s.cfg.Look
		found, err := s.lookUp(ctx, k)
		if err == nil {
			err = s.watch(ctx, found)
		}
		switch {
		case ctx.Err() != nil:
			return
		case errors.As(err, new(errAbsent)):
			s.absent(k)
			again = firstPause
		default:
			s.failed(k, err)
			pause, again = min(again, s.cfg.Retry), 2*again
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// absent notes that there is nothing of a kind, nor anything to watch.
func (s *Source) absent(k kind) {
	s.queue.replace(k.name, nil, nil)
	s.works(k)
	s.hasRead(k)
}

// watch is client-go's informer without its store: the Reflector lists, watches,
// and begins again with growing pauses. It returns when the server does not have
// the kind any more.
func (s *Source) watch(ctx context.Context, k kind) error {
	gv := schema.GroupVersion{Group: k.group, Version: k.version}
	c, err := s.client.of(gv, k.custom())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	quiet := logr.Discard() // what fails is said by failed
	ctx = klog.NewContext(ctx, quiet)
	lw := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			list, err := request(c, k, o).Do(ctx).Get()
			return list, s.outcome(k, err, cancel)
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.Watch = true
			w, err := request(c, k, o).Watch(ctx)
			return w, s.outcome(k, err, cancel)
		},
	}
	cache.NewReflectorWithOptions(lw, k.object, &store{source: s, kind: k}, cache.ReflectorOptions{
		Logger: &quiet, Name: "meshctl", TypeDescription: k.name,
		Backoff: &wait.Backoff{Duration: min(firstPause, s.cfg.Retry), Cap: s.cfg.Retry, Steps: 12, Factor: 2, Jitter: 1},
	}).RunWithContext(ctx)
	if cause := context.Cause(ctx); errors.As(cause, new(errAbsent)) {
		return cause
	}
	return ctx.Err()
}

func request(c *rest.RESTClient, k kind, o metav1.ListOptions) *rest.Request {
	r := c.Get().Resource(k.resource).SpecificallyVersionedParams(&o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
	if o.TimeoutSeconds != nil {
		r = r.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	return r
}

// outcome notes how a request went. A kind that is gone ends its watch.
func (s *Source) outcome(k kind, err error, gone context.CancelCauseFunc) error {
	switch {
	case err == nil:
		s.works(k)
	case apierrors.IsNotFound(err) && k.custom():
		gone(errAbsent{k.name})
	case apierrors.IsForbidden(err) && !k.needed:
		s.failed(k, err)
		s.hasRead(k) // the picture has to do without it
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err):
		// The Reflector lists again.
	default:
		s.failed(k, err)
	}
	return err
}

func (s *Source) works(k kind) {
	s.mu.Lock()
	st := s.kinds[k.name]
	said := st.said
	st.lost, st.err, st.said = time.Time{}, nil, false
	s.mu.Unlock()
	if said {
		s.cfg.Log.Info("the Kubernetes API answers again", "api", s.client.host, "kind", k.name)
	}
}

// failed notes a failure, and says it once.
func (s *Source) failed(k kind, err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	s.mu.Lock()
	st := s.kinds[k.name]
	said := st.said
	if st.lost.IsZero() {
		st.lost = time.Now()
	}
	st.err, st.said = err, true
	s.mu.Unlock()
	if said {
		return
	}
	text := "the Kubernetes API does not answer: what was known stays"
	if apierrors.IsForbidden(err) {
		text = "the Kubernetes API forbids list and watch: see docs/kubernetes.md for the rights that are needed"
	}
	s.cfg.Log.Warn(text, "api", s.client.host, "kind", k.name, "err", err)
}

// hasRead notes that all objects of a kind are in the queue.
func (s *Source) hasRead(k kind) {
	s.mu.Lock()
	s.kinds[k.name].read = true
	s.mu.Unlock()
	s.queue.wake()
}

// whole reports whether all kinds have been read.
func (s *Source) whole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.kinds {
		if !k.read {
			return false
		}
	}
	return true
}

// note reports whether this is the first picture.
func (s *Source) note() (first bool) {
	select {
	case <-s.synced:
		return false
	default:
		return true
	}
}
