package route

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/meshctl/meshctl/internal/annotation"
)

// The families of annotations that say how requests are sent.
const (
	retryPrefix         = "retry.linkerd.io/"
	timeoutPrefix       = "timeout.linkerd.io/"
	balancerPrefix      = "balancer.linkerd.io/"
	alphaBalancerPrefix = "balancer.alpha.linkerd.io/"
	accrual             = balancerPrefix + "failure-accrual"
)

// Said is what the annotations of one object say. A family that is not there
// leaves what the parent says; one that is there replaces all of it.
type Said struct {
	Timeouts    Timeouts
	HasTimeouts bool
	Retry       Retry
	HasRetry    bool
	Breaker     Breaker
	Penalty     Penalty
}

// ParseAnnotations reads timeout.linkerd.io/*, retry.linkerd.io/* and, of a
// parent (of is 0), balancer.linkerd.io/*; other annotations are none of its
// business. The Problems name the field only. A key of these families that is
// not known is a Problem, too.
func ParseAnnotations(of Kind, annotations map[string]string) (Said, Problems) {
	p := annotationParser{of: of, breaker: Breaker{Jitter: defaultJitter}}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if inFamily(key) {
			p.parse(key, annotations[key])
		}
	}
	p.finish()
	return p.said, p.judge.problems
}

func inFamily(key string) bool {
	for _, prefix := range []string{retryPrefix, timeoutPrefix, balancerPrefix, alphaBalancerPrefix} {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// annotationParser reads one object's annotations.
type annotationParser struct {
	of       Kind
	said     Said
	limit    *uint16
	breaking bool
	breaker  Breaker
	penalize bool
	penalty  Penalty
	judge    judge
}

func (p *annotationParser) wrong(key, format string, args ...any) {
	p.judge.wrong("metadata.annotations["+key+"]", format, args...)
}

func (p *annotationParser) parse(key, value string) {
	value = strings.TrimSpace(value)
	switch {
	case strings.HasPrefix(key, timeoutPrefix):
		p.said.HasTimeouts = true
		p.timeout(key, value)
	case strings.HasPrefix(key, retryPrefix):
		p.said.HasRetry = true
		p.retry(key, value)
	case p.of != 0:
		p.wrong(key, "has no effect on a %s: it belongs to a Service", p.of)
	case strings.HasPrefix(key, balancerPrefix):
		p.balancer(key, value)
	default:
		p.alphaBalancer(key, value)
	}
}

func (p *annotationParser) timeout(key, value string) {
	switch key {
	case timeoutPrefix + "request":
		p.said.Timeouts.Request = p.duration(key, value)
	case timeoutPrefix + "response":
		p.said.Timeouts.Response = p.duration(key, value)
	case timeoutPrefix + "idle":
		p.said.Timeouts.Idle = p.duration(key, value)
	default:
		p.wrong(key, "unknown: there are request, response and idle")
	}
}

func (p *annotationParser) retry(key, value string) {
	switch {
	case key == retryPrefix+"http" && p.of != GRPC:
		p.statuses(key, value)
	case key == retryPrefix+"grpc" && p.of != HTTP:
		p.codes(key, value)
	case key == retryPrefix+"http", key == retryPrefix+"grpc":
		p.wrong(key, "has no meaning on a %s", p.of)
	case key == retryPrefix+"limit":
		n, err := strconv.ParseUint(value, 10, 16)
		if err != nil {
			p.wrong(key, "%q is not a number of retries", value)
			return
		}
		limit := uint16(n)
		p.limit = &limit
	case key == retryPrefix+"timeout":
		p.said.Retry.Timeout = p.duration(key, value)
	default:
		p.wrong(key, "unknown: there are http, grpc, limit and timeout")
	}
}

// statuses reads "5xx", "gateway-error", "503", "500-504" and lists of them.
func (p *annotationParser) statuses(key, value string) {
	for item := range strings.SplitSeq(value, ",") {
		item = strings.TrimSpace(item)
		lo, hi := 0, 0
		switch item {
		case "5xx":
			lo, hi = 500, 599
		case "gateway-error":
			lo, hi = 502, 504
		default:
			from, to, isRange := strings.Cut(item, "-")
			if !isRange {
				to = from
			}
			lo, hi = status(from), status(to)
			if lo == 0 || hi < lo {
				p.wrong(key, "%q is not 5xx, gateway-error, a status or a range of them", item)
				continue
			}
		}
		for s := lo; s <= hi; s++ {
			p.said.Retry.Statuses.Add(s)
		}
	}
}

// status reads a status of a failure; 0 is none. A 4xx is one that a client is
// told to try again later, a 2xx or 3xx is a success.
func status(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || len(s) != 3 || n < 400 || n > 599 {
		return 0
	}
	return n
}

func (p *annotationParser) codes(key, value string) {
	for item := range strings.SplitSeq(value, ",") {
		switch item = strings.TrimSpace(item); item {
		case "cancelled":
			p.said.Retry.Codes.Add(1)
		case "deadline-exceeded":
			p.said.Retry.Codes.Add(4)
		case "resource-exhausted":
			p.said.Retry.Codes.Add(8)
		case "internal":
			p.said.Retry.Codes.Add(13)
		case "unavailable":
			p.said.Retry.Codes.Add(14)
		default:
			p.wrong(key, "%q is not cancelled, deadline-exceeded, resource-exhausted, internal or unavailable", item)
		}
	}
}

func (p *annotationParser) balancer(key, value string) {
	switch key {
	case accrual:
		p.breaking = value == "consecutive"
		if !p.breaking {
			p.wrong(key, "%q is not supported: only consecutive", value)
		}
	case accrual + "-consecutive-max-failures":
		n, err := strconv.ParseUint(value, 10, 32)
		if err != nil || n == 0 {
			p.wrong(key, "%q is not a number of failures", value)
		}
		p.breaker.MaxFailures = uint32(n)
	case accrual + "-consecutive-min-penalty":
		p.breaker.MinPenalty = p.duration(key, value)
	case accrual + "-consecutive-max-penalty":
		p.breaker.MaxPenalty = p.duration(key, value)
	case accrual + "-consecutive-jitter-ratio":
		ratio, err := strconv.ParseFloat(value, 64)
		if err != nil || !(ratio >= 0 && ratio <= 100) {
			p.wrong(key, "%q is not a ratio", value)
			return
		}
		p.breaker.Jitter = ratio
	default:
		p.wrong(key, "unknown, or not supported")
	}
}

func (p *annotationParser) alphaBalancer(key, value string) {
	switch key {
	case alphaBalancerPrefix + "penalize-failures":
		on, err := annotation.ParseBool(value)
		if err != nil {
			p.wrong(key, "%w", err)
		}
		p.penalize = on
	case alphaBalancerPrefix + "load-biaser-penalty":
		p.penalty.Latency = p.duration(key, value)
	case alphaBalancerPrefix + "load-biaser-max-retry-after":
		p.penalty.MaxRetryAfter = p.duration(key, value)
	default:
		p.wrong(key, "unknown, or not supported")
	}
}

func (p *annotationParser) duration(key, value string) time.Duration {
	d, err := annotation.ParseDuration(value)
	if err != nil {
		p.wrong(key, "%w", err)
	}
	return d
}

// finish fills in what is not said.
func (p *annotationParser) finish() {
	if p.said.HasRetry {
		p.said.Retry.Limit = 1
		if p.limit != nil {
			p.said.Retry.Limit = *p.limit
		}
	}
	if p.penalize {
		p.said.Penalty = p.penalty.withDefaults()
	}
	if !p.breaking {
		return
	}
	b := p.breaker.withDefaults()
	if b.MinPenalty > b.MaxPenalty {
		p.wrong(accrual+"-consecutive-max-penalty", "%w", fmt.Errorf("%v is less than the least penalty, %v", b.MaxPenalty, b.MinPenalty))
		return
	}
	p.said.Breaker = b
}
