package route

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func statuses(list ...int) (s Statuses) {
	for _, n := range list {
		s.Add(n)
	}
	return s
}

func codes(list ...int) (c Codes) {
	for _, n := range list {
		c.Add(n)
	}
	return c
}

func TestAnnotationsAreRead(t *testing.T) {
	const accrualKey, alpha = "balancer.linkerd.io/failure-accrual", "balancer.alpha.linkerd.io/"
	for _, c := range []struct {
		name string
		of   Kind
		in   map[string]string
		want Said
	}{
		{"none", HTTP, nil, Said{}},
		{"others", HTTP, map[string]string{"config.linkerd.io/opaque-ports": "x", "retry.example.com/http": "y"}, Said{}},
		{"timeouts", HTTP, map[string]string{"timeout.linkerd.io/request": "2s", "timeout.linkerd.io/response": "150ms", "timeout.linkerd.io/idle": "1m"},
			Said{HasTimeouts: true, Timeouts: Timeouts{Request: 2 * time.Second, Response: 150 * time.Millisecond, Idle: time.Minute}}},
		{"statuses", HTTP, map[string]string{"retry.linkerd.io/http": "gateway-error, 500,429, 507-508"},
			Said{HasRetry: true, Retry: Retry{Limit: 1, Statuses: statuses(429, 500, 502, 503, 504, 507, 508)}}},
		{"a limit and a timeout", 0, map[string]string{"retry.linkerd.io/limit": "3", "retry.linkerd.io/timeout": "300ms"},
			Said{HasRetry: true, Retry: Retry{Limit: 3, Timeout: 300 * time.Millisecond}}},
		{"no retries, said", 0, map[string]string{"retry.linkerd.io/limit": "0"}, Said{HasRetry: true}},
		{"codes", GRPC, map[string]string{"retry.linkerd.io/grpc": "cancelled,deadline-exceeded,resource-exhausted,internal,unavailable"},
			Said{HasRetry: true, Retry: Retry{Limit: 1, Codes: codes(1, 4, 8, 13, 14)}}},
		{"a breaker as it is", 0, map[string]string{accrualKey: "consecutive"},
			Said{Breaker: Breaker{7, time.Second, time.Minute, 0.5}}},
		{"a breaker", 0, map[string]string{accrualKey: "consecutive", accrualKey + "-consecutive-max-failures": "4",
			accrualKey + "-consecutive-min-penalty": "5s", accrualKey + "-consecutive-max-penalty": "2m", accrualKey + "-consecutive-jitter-ratio": "0"},
			Said{Breaker: Breaker{4, 5 * time.Second, 2 * time.Minute, 0}}},
		{"a breaker's numbers without a breaker", 0, map[string]string{accrualKey + "-consecutive-max-failures": "4"}, Said{}},
		{"a penalty as it is", 0, map[string]string{alpha + "penalize-failures": "true"}, Said{Penalty: Penalty{5 * time.Second, 300 * time.Second}}},
		{"a penalty", 0, map[string]string{alpha + "penalize-failures": "true", alpha + "load-biaser-penalty": "1s", alpha + "load-biaser-max-retry-after": "10s"},
			Said{Penalty: Penalty{time.Second, 10 * time.Second}}},
		{"no penalty", 0, map[string]string{alpha + "penalize-failures": "false", alpha + "load-biaser-penalty": "1s"}, Said{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, problems := ParseAnnotations(c.of, c.in)
			if len(problems) > 0 {
				t.Error(problems)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	got, _ := ParseAnnotations(HTTP, map[string]string{"retry.linkerd.io/http": "5xx"})
	for s, want := range map[int]bool{499: false, 500: true, 550: true, 599: true, 600: false, 99: false, 100: false} {
		if got.Retry.Statuses.Has(s) != want {
			t.Errorf("5xx has %d: %v", s, !want)
		}
	}
	if c := codes(0, 16, 17, -1); !c.Has(0) || !c.Has(16) || c.Has(1) || c.Has(17) || c.Has(-1) {
		t.Errorf("codes are %b", c)
	}
}

func TestWhatAnAnnotationMayNotSay(t *testing.T) {
	for _, c := range []struct{ key, value, says string }{
		{"timeout.linkerd.io/reqest", "1s", "unknown"},
		{"timeout.linkerd.io/request", "1", "no duration"},
		{"retry.linkerd.io/https", "5xx", "unknown"},
		{"retry.linkerd.io/http", "4xx", "is not"},
		{"retry.linkerd.io/http", "", "is not"},
		{"retry.linkerd.io/http", "504-500", "is not"},
		{"retry.linkerd.io/http", "200", "is not"},
		{"retry.linkerd.io/http", "600", "is not"},
		{"retry.linkerd.io/http", "500-", "is not"},
		{"retry.linkerd.io/grpc", "14", "is not"},
		{"retry.linkerd.io/limit", "-1", "number of retries"},
		{"retry.linkerd.io/limit", "many", "number of retries"},
		{"balancer.linkerd.io/failure-accrual", "unified", "not supported"},
		{"balancer.linkerd.io/failure-accrual-consecutive-max-failures", "0", "number of failures"},
		{"balancer.linkerd.io/failure-accrual-consecutive-jitter-ratio", "NaN", "ratio"},
		{"balancer.linkerd.io/failure-accrual-success-rate", "0.8", "unknown, or not supported"},
		{"balancer.alpha.linkerd.io/penalize-failures", "perhaps", "neither"},
		{"balancer.alpha.linkerd.io/other", "1", "unknown"},
	} {
		_, problems := ParseAnnotations(0, map[string]string{c.key: c.value})
		if len(problems) != 1 || problems[0].Field != "metadata.annotations["+c.key+"]" || !strings.Contains(problems[0].Err.Error(), c.says) {
			t.Errorf("%s: %q: %v, want that it %s", c.key, c.value, problems, c.says)
		}
	}
	_, problems := ParseAnnotations(0, map[string]string{"balancer.linkerd.io/failure-accrual": "consecutive",
		"balancer.linkerd.io/failure-accrual-consecutive-min-penalty": "2m"})
	if len(problems) != 1 || !strings.Contains(problems.Error(), "less than the least") {
		t.Errorf("a least penalty above the greatest: %v", problems)
	}
}

func TestTheNearestWordOnPolicyCounts(t *testing.T) {
	parent := map[string]string{
		"timeout.linkerd.io/request": "10s", "timeout.linkerd.io/idle": "5s", "retry.linkerd.io/http": "5xx", "retry.linkerd.io/limit": "4",
	}
	fromParent := Policy{Timeouts{Request: 10 * time.Second, Idle: 5 * time.Second}, Retry{Limit: 4}}
	for s := 500; s < 600; s++ {
		fromParent.Retry.Statuses.Add(s)
	}
	for _, c := range []struct {
		name        string
		annotations map[string]string
		rule        Rule
		want        Policy
	}{
		{"nothing said by the route", nil, Rule{}, fromParent},
		{"timeouts said by the route replace the parent's", map[string]string{"timeout.linkerd.io/response": "1s"}, Rule{},
			Policy{Timeouts{Response: time.Second}, fromParent.Retry}},
		{"retries said by the route replace the parent's", map[string]string{"retry.linkerd.io/limit": "1"}, Rule{},
			Policy{fromParent.Timeouts, Retry{Limit: 1}}},
		{"timeouts of a rule are put over what there is", nil, Rule{Timeouts: &TimeoutSpec{Request: "1m30s", BackendRequest: "250ms"}},
			Policy{Timeouts{Request: 90 * time.Second, Backend: 250 * time.Millisecond, Idle: 5 * time.Second}, fromParent.Retry}},
		{"a rule may say no timeout", nil, Rule{Timeouts: &TimeoutSpec{Request: "0s"}}, Policy{Timeouts{Idle: 5 * time.Second}, fromParent.Retry}},
		{"a rule's retries replace all others", map[string]string{"retry.linkerd.io/http": "503"},
			Rule{Retry: &RetrySpec{Codes: []int{500, 429}, Attempts: number(3), Backoff: "100ms"}},
			Policy{fromParent.Timeouts, Retry{Limit: 3, Statuses: statuses(429, 500), Backoff: 100 * time.Millisecond}}},
		{"a rule's retries are one, if it does not say", nil, Rule{Retry: &RetrySpec{}}, Policy{fromParent.Timeouts, Retry{Limit: 1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := ruled(c.rule)
			r.Annotations = c.annotations
			tab, err := New(Config{Routes: []Route{r}, Annotations: parent})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, tab.Match(asked(t, "GET a /")).Policy); diff != "" {
				t.Error(diff)
			}
		})
	}
}
