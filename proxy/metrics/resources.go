package metrics

import "sync/atomic"

// resources counts loads of files of Kubernetes objects.
type resources struct {
	loads    [2]atomic.Uint64 // in order, broken
	problems [2]atomic.Int64  // warnings, errors: of the last load
	objects  atomic.Int64
}

// ResourcesLoaded notes a load of resource files: whether anything had changed,
// how many problems keep a file from being taken, how many warnings there are,
// and how many objects count now.
func (m *Metrics) ResourcesLoaded(changed bool, errors, warnings, objects int) {
	r := &m.resources
	switch {
	case errors > 0 && (changed || r.problems[1].Load() != int64(errors)):
		r.loads[1].Add(1)
	case errors == 0 && changed:
		r.loads[0].Add(1)
	}
	r.problems[0].Store(int64(warnings))
	r.problems[1].Store(int64(errors))
	r.objects.Store(int64(objects))
}

func (p *page) resources() {
	p.resourceLoads = p.add("meshctl_resource_loads_total", "Loads of resource files that brought something new, by result; broken: some file keeps what it said before.", "result")
	p.resourceProblems = p.add("meshctl_resource_problems", "Problems of the resource files as they are now.", "severity")
	p.resourceObjects = p.add("meshctl_resource_objects", "Kubernetes objects that count now.")
}

func (m *Metrics) collectResources(send sender) {
	r := &m.resources
	for i, result := range []string{"ok", "broken"} {
		send.counter(m.page.resourceLoads, r.loads[i].Load(), labels{}.with("result", result))
	}
	for i, severity := range []string{"warning", "error"} {
		send.gauge(m.page.resourceProblems, r.problems[i].Load(), labels{}.with("severity", severity))
	}
	send.gauge(m.page.resourceObjects, r.objects.Load(), nil)
}
