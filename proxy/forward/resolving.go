package forward

import "time"

// This file waits for what the Router has asked for and does not know yet. Nothing
// is read from the client meanwhile, and nothing dialed: what the answer declares
// counts from the first byte on.

// resolveAtMost is how long a connection waits for a Router that says Pending.
// Whoever is asked gives up before; this is for one that does not.
const resolveAtMost = 3 * time.Second

// await calls then once the route is known, or as well known as it gets.
func (fl *flow) await(then func(*flow)) {
	f := fl.lane.forwarder
	fl.phase, fl.resolved = resolving, then
	f.resolving.Add(1)
	fl.lane.loop.Start(&fl.dialTimer, resolveAtMost, fl)
	fl.resolve() // it may have become known before anybody knew of the wait
}

// resolve asks the Router again, and goes on if it knows.
func (fl *flow) resolve() {
	if fl.phase != resolving {
		return
	}
	to, err := fl.lane.forwarder.router.Route(fl.client, fl.route.Target)
	if err == nil && to.Pending {
		return
	}
	fl.resolvedTo(to, err)
}

// resolveLate goes on with what there is.
func (fl *flow) resolveLate() {
	fl.resolvedTo(fl.lane.forwarder.router.Route(fl.client, fl.route.Target))
}

func (fl *flow) resolvedTo(to Route, err error) {
	then := fl.resolved
	fl.doneResolving()
	if err != nil {
		fl.src.Reset()
		fl.refuse(fl.route.Target, err)
		return
	}
	fl.phase, fl.route, fl.late = detecting, to, true
	then(fl)
}

// doneResolving ends the wait.
func (fl *flow) doneResolving() {
	if fl.resolved == nil {
		return
	}
	fl.resolved = nil
	fl.lane.forwarder.resolving.Add(-1)
	fl.lane.loop.Cancel(&fl.dialTimer)
}

// Resolve has the connections that wait for the Router ask it again. It has to be
// called, on any goroutine, after each change of what the Router knows.
func (f *Forwarder) Resolve() {
	if f.resolving.Load() == 0 {
		return
	}
	for l, ln := range f.lanes {
		l.Post(func() { ln.each((*flow).resolve) })
	}
}
