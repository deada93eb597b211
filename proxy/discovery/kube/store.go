package kube

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/file"
)

// store is what a Reflector writes to. Nothing of the objects is kept but what the
// picture wants: each is read as soon as it is decoded.
type store struct {
	source *Source
	kind   kind
	// words are names that many objects share, such as those of nodes. Only the
	// Reflector's goroutine uses them.
	words map[string]string
}

// wordsAtMost bounds them; then they are forgotten, and collected anew.
const wordsAtMost = 10_000

// once makes equal texts be one text.
func (st *store) once(texts ...*string) {
	for _, text := range texts {
		if w, ok := st.words[*text]; ok {
			*text = w
			continue
		}
		if st.words == nil || len(st.words) >= wordsAtMost {
			st.words = map[string]string{}
		}
		st.words[*text] = *text
	}
}

// share does so for what a picture has most of.
func (st *store) share(o *cluster.Objects) {
	for _, sl := range o.Slices {
		st.once(&sl.Namespace)
		for i := range sl.Endpoints {
			st.once(&sl.Endpoints[i].Node, &sl.Endpoints[i].Zone)
		}
		for i := range sl.Ports {
			st.once(&sl.Ports[i].Name)
		}
	}
	for _, p := range o.Pods {
		st.once(&p.Namespace, &p.Node)
	}
	for _, s := range o.Services {
		st.once(&s.Namespace)
	}
}

// entry is an object that has been read.
type entry struct {
	metav1.ObjectMeta // its name only
	item              cluster.Item
	keep              bool // it is broken: what it said before stays
}

// Transformer implements cache.TransformingStore: a Reflector that collects a list
// collects entries.
func (st *store) Transformer() cache.TransformFunc {
	return func(o any) (any, error) { return st.entry(o) }
}

// Add implements cache.ReflectorStore.
func (st *store) Add(o any) error { return st.Update(o) }

// Update implements cache.ReflectorStore.
func (st *store) Update(o any) error {
	e, err := st.entry(o)
	if err == nil && !e.keep {
		st.source.queue.put(e.item)
	}
	return err
}

// Delete implements cache.ReflectorStore.
func (st *store) Delete(o any) error {
	e, err := st.entry(o)
	if err == nil {
		st.source.queue.put(cluster.Item{Key: e.item.Key})
	}
	return err
}

// Replace implements cache.ReflectorStore.
func (st *store) Replace(list []any, _ string) error {
	items, broken := make([]cluster.Item, 0, len(list)), map[cluster.Key]bool{}
	for _, o := range list {
		e, err := st.entry(o)
		if err != nil {
			return err
		}
		if e.keep {
			broken[e.item.Key] = true
			continue
		}
		items = append(items, e.item)
	}
	st.source.queue.replace(st.kind.name, items, broken)
	st.source.hasRead(st.kind)
	return nil
}

// Resync implements cache.ReflectorStore.
func (st *store) Resync() error { return nil }

// entry reads an object, if that is not done yet.
func (st *store) entry(o any) (*entry, error) {
	if e, ok := o.(*entry); ok {
		return e, nil
	}
	m, ok := o.(metav1.Object)
	if !ok {
		return nil, fmt.Errorf("the API server sent a %T for a %s", o, st.kind.name)
	}
	given := o
	switch o := o.(type) {
	case *rawObject:
		given = o.text
	case *corev1.Pod:
		o.ManagedFields = nil
	}
	e := &entry{ObjectMeta: metav1.ObjectMeta{Namespace: m.GetNamespace(), Name: m.GetName(), ResourceVersion: m.GetResourceVersion()}}
	e.item.Key = cluster.Key{Kind: st.kind.name, Namespace: m.GetNamespace(), Name: m.GetName()}
	var problems []file.Problem
	e.item.Objects, problems = file.Object(st.kind.name, m.GetNamespace(), m.GetName(), given)
	st.share(&e.item.Objects)
	e.keep = slices.ContainsFunc(problems, file.Problem.Breaks)
	st.source.tell(problems)
	return e, nil
}

// toldAtMost bounds what is remembered of problems; beyond it they are not told.
const toldAtMost = 1000

// tell logs problems of objects, each once.
func (s *Source) tell(problems []file.Problem) {
	for _, p := range problems {
		if s.cfg.Told != nil {
			s.cfg.Told(p)
		}
		if !p.Breaks() && p.Code != file.BadAnnotation {
			continue // advice for whoever writes the objects: see meshctl check
		}
		text := p.Error()
		s.mu.Lock()
		fresh := !s.told[text] && len(s.told) < toldAtMost
		if fresh {
			s.told[text] = true
		}
		s.mu.Unlock()
		if fresh {
			s.cfg.Log.Warn("an object of the cluster is wrong", "object", p.Object.String(), "field", p.Field, "code", string(p.Code), "err", p.Text)
		}
	}
}
