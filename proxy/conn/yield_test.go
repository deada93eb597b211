package conn

import (
	"testing"
	"time"
)

func TestOnlyABusyLoopGivesWay(t *testing.T) {
	l, err := NewLoop()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { l.Stop(); _ = l.Run() }()
	l.now = time.Second
	for range busyEvents - 1 {
		l.yield.count(1, l.now)
	}
	if l.giveWay() {
		t.Error("with little to do it gives way")
	}
	l.yield.count(1, l.now)
	if !l.giveWay() {
		t.Error("with much to do it does not give way")
	}
	l.now = time.Second + window // the next window: the last one was busy
	l.yield.count(1, l.now)
	if !l.giveWay() {
		t.Error("after a busy window it does not give way")
	}
	l.now = time.Second + 2*window
	l.yield.count(1, l.now)
	if l.giveWay() {
		t.Error("after a window with little to do it gives way")
	}
	l.now = time.Second + 3*window
	l.yield.count(busyEvents, l.now)
	l.yield.rest = l.now + restFor
	if l.giveWay() {
		t.Error("it gives way to somebody who computes all the time")
	}
	l.now = time.Second + 30*window // long after
	l.yield.count(1, l.now)
	if l.yield.busy {
		t.Error("a window long ago makes the loop busy")
	}
}
