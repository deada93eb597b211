package identity

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/meshctl/meshctl/proxy/identity/authority"
)

// The bubble's clock begins in the year 2000, and the CA with it.
func TestACertificateIsWarnedOfOnceAndThenRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		ca := newCA(t)
		h := newHolder(j.logger(), "nothing")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { h.watchLife(ctx); close(done) }()
		if _, err := h.Current(); !errors.Is(err, ErrWaiting) {
			t.Error(err)
		}
		s := snapshot(t, issue(t, ca, webName, func(r *authority.Request) { r.Life = 100 * time.Minute }))
		h.take(s)
		begin := time.Now()
		for _, step := range []struct {
			at               time.Duration
			warned, over, ok bool
		}{
			{65 * time.Minute, false, false, true},
			{71 * time.Minute, true, false, true},
			{99 * time.Minute, true, false, true},
			{101 * time.Minute, true, true, false},
			{5 * time.Hour, true, true, false},
		} {
			time.Sleep(time.Until(begin.Add(step.at)))
			synctest.Wait()
			_, err := h.Current()
			if (err == nil) != step.ok || !step.ok && !errors.Is(err, ErrExpired) {
				t.Errorf("after %s: %v", step.at, err)
			}
			if n := strings.Count(j.String(), "about to expire"); n != count(step.warned) {
				t.Errorf("after %s: %d warnings", step.at, n)
			}
			if n := strings.Count(j.String(), "mesh connections are refused"); n != count(step.over) {
				t.Errorf("after %s: told %d times that it is over", step.at, n)
			}
		}
		h.take(snapshot(t, issue(t, ca, webName)))
		synctest.Wait()
		if now, err := h.Current(); err != nil || now.Generation() != 2 {
			t.Errorf("after a new one: %v", err)
		}
		time.Sleep(50 * time.Minute)
		synctest.Wait()
		if n := strings.Count(j.String(), "about to expire"); n != 2 {
			t.Errorf("%d warnings of two certificates", n)
		}
		cancel()
		<-done
	})
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
