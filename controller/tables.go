package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"weak"

	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/policy"
)

// tablesMost is how many Tables are kept. Pods of one template share one.
const tablesMost = 4096

// tables are the policies of pods that somebody asks about, as the objects of one
// picture say it.
type tables struct {
	mu     sync.Mutex
	of     weak.Pointer[cluster.Snapshot] // which must not stay because of its tables
	spaces map[string]policy.Objects      // by namespace
	made   map[string]*policy.Table       // by template
}

// table is the policy of a pod. Whatever it is made of, but for the pod, is another
// only with another Snapshot.
func (t *tables) table(s *cluster.Snapshot, base policy.Config, pod *policy.Pod) *policy.Table {
	t.mu.Lock()
	defer t.mu.Unlock()
	if of := weak.Make(s); t.of != of || len(t.made) >= tablesMost {
		t.of, t.spaces, t.made = of, map[string]policy.Objects{}, map[string]*policy.Table{}
	}
	key := template(pod)
	if made := t.made[key]; made != nil {
		return made
	}
	objects, ok := t.spaces[pod.Namespace]
	if !ok {
		objects = s.Policies()
		objects = objects.In(pod.Namespace)
		t.spaces[pod.Namespace] = objects
	}
	base.Pod = *pod
	if pod.Default != 0 {
		base.Default = pod.Default
	} else if d := objects.DefaultOf(pod.Namespace); d != 0 {
		base.Default = d
	}
	made := policy.Compile(base, objects)
	t.made[key] = made
	return made
}

// template is what a Table is made of, of a pod: all but its name and its addresses.
func template(p *policy.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %d", p.Namespace, p.Default)
	for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
		fmt.Fprintf(&b, " %q=%q", k, p.Labels[k])
	}
	for _, n := range p.Ports {
		fmt.Fprintf(&b, " %q:%d", n.Name, n.Number)
	}
	for _, probe := range p.Probes {
		fmt.Fprintf(&b, " %d%q", probe.Port, probe.Path)
	}
	return b.String()
}
