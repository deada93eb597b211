package policy

import (
	"sync"
	"testing"
)

func TestAChangeIsToldOnceAndTheOldPortStaysAsItWas(t *testing.T) {
	first := Compile(Config{Pod: pod()}, routed())
	l := NewLive(first)
	told := 0
	l.Changed(func() {
		told++
		if told == 1 && l.Port(8080).AuthorizeConnection(called("ops")).Allowed {
			t.Error("told before the change counts")
		}
	})
	old := l.Port(8080)
	if l.Replace(Compile(Config{Pod: pod()}, routed())) || told != 0 {
		t.Error("the same objects are a change")
	}
	without := routed()
	without.Authorizations = without.Authorizations[:2]
	if !l.Replace(Compile(Config{Pod: pod()}, without)) || told != 1 {
		t.Errorf("told %d times", told)
	}
	if !old.AuthorizeConnection(called("ops")).Allowed {
		t.Error("a Port has changed")
	}
	if !l.Replace(Compile(Config{Pod: pod(), Default: Deny}, without)) || told != 2 || l.Table().Default() != Deny {
		t.Error("another default is no change")
	}
	relabelled := pod()
	relabelled.Labels = map[string]string{"app": "db"}
	if !l.Replace(Compile(Config{Pod: relabelled}, without)) || l.Port(8080).Covered() {
		t.Error("other labels are no change")
	}
}

func TestObjectsOfOtherNamespacesAreNoChange(t *testing.T) {
	l := NewLive(Compile(Config{Pod: pod()}, routed()))
	more := routed()
	other := srv("web", 8080)
	other.Namespace = "other"
	more.Servers = append(more.Servers, other)
	if l.Replace(Compile(Config{Pod: pod()}, more)) {
		t.Error("a Server of another namespace changes this pod's policy")
	}
}

func TestManyAskWhileItChanges(t *testing.T) {
	l := NewLive(Compile(Config{Pod: pod()}, routed()))
	closed := routed()
	closed.Authorizations = nil
	tables := []*Table{Compile(Config{Pod: pod()}, closed), Compile(Config{Pod: pod()}, routed())}
	done := make(chan struct{})
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				p := l.Port(8080)
				conn, req := p.AuthorizeConnection(called("ops")).Allowed, p.AuthorizeRequest(called("ops"), get("/admin")).Allowed
				if conn != req {
					t.Error("one Port says two things")
					return
				}
			}
		})
	}
	for i := range 500 {
		l.Replace(tables[i%2])
	}
	close(done)
	asking.Wait()
}
