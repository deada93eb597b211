package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/meshctl/meshctl/internal/annotation"
	"github.com/meshctl/meshctl/proxy/conn"
	"github.com/meshctl/meshctl/proxy/discovery/file"
	"github.com/meshctl/meshctl/proxy/policy"
)

// InboundPolicy says who may call, and which pod this is. The zero value is
// Linkerd's default: everybody may.
type InboundPolicy struct {
	// Default is who may call ports that no Server selects. It wins over the
	// annotations of the pod and of its namespace; not said: they count.
	Default         policy.Default
	ClusterNetworks []netip.Prefix // nil: policy.DefaultClusterNetworks
	// Actions are what becomes of connections that do not turn out to be HTTP.
	Actions policy.Actions

	Labels    string // file with the pod's labels, as the downward API writes it; empty: those of the Pod
	Pod       string // its name, in Namespace; empty: the Pod that has an address of this machine
	PortNames []policy.NamedPort
}

// ErrUnknownPod is the error of a proxy that has Servers and cannot tell whether
// they select its pod.
var ErrUnknownPod = errors.New("there are Servers, and it is not known which pod this is")

// authorizer keeps the policy of the pod up with what it is made of.
type authorizer struct {
	live *policy.Live // made by Proxy.authorize, before anybody asks

	mu        sync.Mutex // of what follows
	cfg       *Config
	locals    conn.Locals
	objects   policy.Objects
	labels    map[string]string // of the file; nil: there is none
	annotated policy.Default    // by the annotations file
	failed    string            // the error that was told last
	sure      bool              // a policy was made of objects
}

// authorize makes the first policy, of the objects that discover has found.
func (p *Proxy) authorize() error {
	a := &p.authz
	a.cfg = &p.cfg
	if name := p.cfg.Policy.Labels; name != "" {
		var err error
		if a.labels, err = file.Labels(name); err != nil {
			return err
		}
	}
	if p.cfg.Annotations != "" {
		pod, _, err := file.Annotations(p.cfg.Annotations)
		if err != nil {
			return err
		}
		a.annotated = annotatedDefault(pod)
	}
	t, err := a.table()
	if err != nil {
		return err
	}
	a.live = policy.NewLive(t)
	a.tell(t)
	return nil
}

// table makes the policy of what is known now.
func (a *authorizer) table() (*policy.Table, error) {
	in := &a.cfg.Policy
	own := policy.Pod{Object: policy.Object{Namespace: a.cfg.Namespace, Name: in.Pod}}
	found := a.objects.Own(a.cfg.Namespace, in.Pod, a.isOwn)
	if found != nil {
		own = *found
	}
	if found == nil && a.labels == nil && a.objects.HasServers(own.Namespace) && len(a.cfg.InboundListen) > 0 {
		if in.Pod != "" {
			return nil, fmt.Errorf("%w: no Pod %s/%s is among the resources", ErrUnknownPod, own.Namespace, in.Pod)
		}
		return nil, ErrUnknownPod
	}
	if a.labels != nil {
		own.Labels = a.labels
	}
	own.Ports = slices.Concat(own.Ports, in.PortNames)
	return policy.Compile(policy.Config{
		Pod: own, Default: cmp.Or(in.Default, a.annotated, own.Default, a.objects.DefaultOf(own.Namespace)),
		ClusterNetworks: in.ClusterNetworks, TrustDomain: a.cfg.TrustDomain, DetectTimeout: a.cfg.of(a.cfg.Inbound).DetectTimeout, Actions: in.Actions,
	}, a.objects), nil
}

// isOwn leaves loopback out: it is everybody's.
func (a *authorizer) isOwn(addr netip.Addr) bool {
	return !addr.IsLoopback() && !addr.IsUnspecified() && a.locals.Has(addr)
}

// change makes the policy again after set has changed something. If that cannot be
// done the last one counts.
func (a *authorizer) change(set func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	set()
	t, err := a.table()
	if errors.Is(err, ErrUnknownPod) && a.cfg.Kubernetes != nil && !a.sure {
		// From files a proxy would not have started. The API is asked later: until it says
		// which pod this is nobody may call, instead of everybody.
		a.live.Replace(policy.Compile(policy.Config{Default: policy.Deny}, policy.Objects{}))
	}
	if err != nil {
		if err.Error() != a.failed {
			a.cfg.Log.Error("the inbound policy stays as it was", "err", err)
		}
		a.failed = err.Error()
		return
	}
	a.failed = ""
	a.sure = a.sure || a.objects.Len() > 0
	if a.live.Replace(t) {
		a.tell(t)
	}
}

// tell writes a policy to the log.
func (a *authorizer) tell(t *policy.Table) {
	if len(a.cfg.InboundListen) == 0 {
		return
	}
	a.cfg.Log.Info("inbound policy", "default", t.Default().String(), "ports_with_a_server", t.Covered())
	for _, o := range t.Unnamed {
		a.cfg.Log.Warn("a Server names a port that is not known here, and does not count", "object", o.String(), "file", o.Place())
	}
}

// setObjects takes new objects.
func (a *authorizer) setObjects(all policy.Objects) { a.change(func() { a.objects = all }) }

// annotate takes what the pod's annotations say.
func (a *authorizer) annotate(pod annotation.Pod) {
	a.change(func() { a.annotated = annotatedDefault(pod) })
}

func annotatedDefault(pod annotation.Pod) policy.Default {
	if pod.DefaultInboundPolicy == nil {
		return 0
	}
	d, _ := policy.ParseDefault(*pod.DefaultInboundPolicy) // a wrong one was never said
	return d
}

// follow keeps up with the labels until ctx ends.
func (a *authorizer) follow(ctx context.Context) {
	file.WatchLabels(ctx, a.cfg.Policy.Labels, a.cfg.Log, func(labels map[string]string) {
		a.change(func() { a.labels = labels })
	})
}
