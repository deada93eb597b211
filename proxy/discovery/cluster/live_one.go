package cluster

import (
	"maps"
	"reflect"
	"slices"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/policy"
)

// This file changes a Snapshot in place, one object at a time.

func (l *Live) one(it Item, change *discovery.Change) {
	n := name{it.Namespace, it.Name}
	switch it.Kind {
	case ServiceKind:
		l.service(n, first(it.Objects.Services), change)
	case SliceKind:
		l.slice(n, first(it.Objects.Slices), change)
	case PodKind:
		// Of a pod among those of everyone the Change says its name, and nobody looks at all.
		change.Policies = change.Policies || !l.s.cfg.Everyone && !reflect.DeepEqual(l.own[n], l.ownOf(it))
		l.keepOwn(it)
		if l.s.cfg.Everyone {
			l.s.keepOwn(n, l.own[n])
		}
		l.pod(n, first(it.Objects.Pods), change)
	}
}

func (l *Live) service(n name, now *Service, change *discovery.Change) {
	before := l.s.services[n]
	change.AddService(n.namespace, n.name)
	for _, sl := range l.s.slices[n] {
		l.leave(sl, before, change)
	}
	if before != nil {
		for _, a := range before.IPs {
			change.AddAddr(a)
			l.serviceIPs.release(l.s.serviceIPs, a, before)
		}
	}
	if now == nil {
		delete(l.s.services, n)
	} else {
		l.s.services[n] = now
		for _, a := range now.IPs {
			change.AddAddr(a)
			l.serviceIPs.claim(l.s.serviceIPs, a, now)
		}
		for _, sl := range l.s.slices[n] {
			l.join(sl, now, change)
		}
	}
	l.tablesOf(n, before, now)
}

// tablesOf makes the tables of a Service's ports anew.
func (l *Live) tablesOf(n name, before, now *Service) {
	old := &Snapshot{tables: map[tableKey]*compiled{}}
	at := parent{"Service", n}
	take := func(port uint16) {
		for _, of := range append(l.s.consumers(at), "") {
			key := tableKey{at, port, of}
			if c := l.s.tables[key]; c != nil {
				old.tables[key] = c
				delete(l.s.tables, key)
			}
		}
	}
	if before != nil {
		take(0)
		for i := range before.Ports {
			take(before.Ports[i].Number)
		}
	}
	if now == nil {
		return
	}
	for i := range now.Ports {
		l.s.compilePort(tableKey{at, now.Ports[i].Number, ""}, now.Object, now.Policy, old)
	}
	l.s.compilePort(tableKey{at, 0, ""}, now.Object, now.Policy, old)
}

func (l *Live) slice(n name, now *Slice, change *discovery.Change) {
	if before := l.slices[n]; before != nil {
		of := name{before.Namespace, before.Service}
		change.AddService(of.namespace, of.name)
		l.leave(before, l.s.services[of], change)
		list := slices.DeleteFunc(slices.Clone(l.s.slices[of]), func(sl *Slice) bool { return sl == before })
		if len(list) == 0 {
			delete(l.s.slices, of)
		} else {
			l.s.slices[of] = list
		}
		delete(l.slices, n)
	}
	if now == nil {
		return
	}
	of := name{now.Namespace, now.Service}
	change.AddService(of.namespace, of.name)
	l.slices[n] = now
	list := append(slices.Clone(l.s.slices[of]), now)
	inOrder(list, func(o *Slice) discovery.Object { return o.Object })
	l.s.slices[of] = list
	l.join(now, l.s.services[of], change)
}

// leave takes the endpoints of a slice out of the members of headless Services.
func (l *Live) leave(sl *Slice, svc *Service, change *discovery.Change) {
	if svc == nil || !svc.Headless {
		return
	}
	for i := range sl.Endpoints {
		a := sl.Endpoints[i].Addr
		change.AddAddr(a)
		list := slices.DeleteFunc(slices.Clone(l.s.headless[a]), func(m member) bool { return m.slice == sl })
		if len(list) == 0 {
			delete(l.s.headless, a)
		} else {
			l.s.headless[a] = list
		}
	}
}

// join adds the endpoints of a slice to the members of a headless Service.
func (l *Live) join(sl *Slice, svc *Service, change *discovery.Change) {
	if svc == nil || !svc.Headless {
		return
	}
	for i := range sl.Endpoints {
		e := &sl.Endpoints[i]
		change.AddAddr(e.Addr)
		l.s.headless[e.Addr] = append(slices.Clone(l.s.headless[e.Addr]), member{svc, sl, e})
	}
}

func (l *Live) pod(n name, now *Pod, change *discovery.Change) {
	before := l.s.pods[n]
	change.AddPod(n.namespace + "/" + n.name)
	if before != nil {
		for _, a := range before.IPs {
			change.AddAddr(a)
			l.podIPs.release(l.s.podIPs, a, before)
		}
	}
	if now == nil {
		delete(l.s.pods, n)
		return
	}
	l.s.pods[n] = now
	l.s.identify(now)
	for _, a := range now.IPs {
		change.AddAddr(a)
		l.podIPs.claim(l.s.podIPs, a, now)
	}
}

// ownOf is the part of a pod that policies ask about; nil of a pod of others.
func (l *Live) ownOf(it Item) *policy.Pod {
	if !l.s.cfg.Everyone && it.Namespace != l.s.cfg.Namespace {
		return nil
	}
	return first(it.Objects.Policies.Pods)
}

func (l *Live) keepOwn(it Item) {
	n := name{it.Namespace, it.Name}
	if p := l.ownOf(it); p != nil {
		l.own[n] = p
	} else {
		delete(l.own, n)
	}
}

// keepOwn is the same for what the picture says.
func (s *Snapshot) keepOwn(n name, p *policy.Pod) {
	if p == nil {
		delete(s.own, n)
	} else {
		s.own[n] = p
	}
}

// ownPods are those pods, in any order: a new list, since the last one is in use.
func (l *Live) ownPods() []*policy.Pod { return slices.Collect(maps.Values(l.own)) }
