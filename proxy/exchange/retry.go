package exchange

import (
	"sync/atomic"
	"time"

	"github.com/meshctl/meshctl/proxy/message"
)

const (
	freeTries    = 2 // of what was not processed
	retryBackoff = 25 * time.Millisecond
	backoffCap   = 250 * time.Millisecond

	// A budget is counted in time: a retry costs what brings in one by waiting.
	budgetRetry = 100 * time.Millisecond // ten a second need not be earned
	budgetEarn  = budgetRetry / 5        // what a request earns: a fifth of a retry
	budgetSpan  = 10 * time.Second       // what was earned earlier does not count
)

// budget bounds the retries of one destination, on all loops together: they may
// add a fifth to what clients send, and ten a second on top, so that they cannot
// keep an endpoint down.
//
// It is one word, the time since which nothing has been spent: now less that,
// budgetSpan at most, is what there is. Time adds by passing, a request by
// moving it back, and while there is all that there can be, which is so unless
// something is wrong, a request only reads it.
type budget struct{ since atomic.Int64 }

func (b *budget) fill(now time.Duration) { b.since.Store(int64(now - budgetSpan)) }

// earn adds what a request is worth. now is on the clock that lanes share.
func (b *budget) earn(now time.Duration) {
	least := int64(now - budgetSpan)
	for {
		since := b.since.Load()
		if since <= least || b.since.CompareAndSwap(since, max(since-int64(budgetEarn), least)) {
			return
		}
	}
}

// spend takes one retry out; false if there is none.
func (b *budget) spend(now time.Duration) bool {
	for {
		since := b.since.Load()
		from := max(since, int64(now-budgetSpan))
		if from+int64(budgetRetry) > int64(now) {
			return false
		}
		if b.since.CompareAndSwap(since, from+int64(budgetRetry)) {
			return true
		}
	}
}

// tokens is how many retries may be made now.
func (b *budget) tokens(now time.Duration) float64 {
	there := min(int64(now)-b.since.Load(), int64(budgetSpan))
	return max(float64(there)/float64(budgetRetry), 0)
}

// replayMost is how much of a body is kept so that it can be sent again.
const replayMost = 64 << 10

// keepBody keeps a piece of the request's body.
func (x *Exchange) keepBody(b []byte) {
	if n := len(x.body) + len(b); n > keptBody && n > cap(x.body) && cap(x.body) < bodySize {
		x.body = append(x.lane.takeBody(), x.body...)
	}
	x.body = append(x.body, b...)
}

// dropBody lets it go.
func (x *Exchange) dropBody() {
	if cap(x.body) > keptBody {
		x.lane.giveBody(x.body)
		x.body = nil
	}
	x.body = x.body[:0]
}

// canRepeat reports whether the rule allows another try and all of the request
// is there to be sent again.
func (x *Exchange) canRepeat() bool {
	return x.hit.Action != nil && x.tries < int(x.hit.Policy.Retry.Limit) && x.keeps && !x.headSent && len(x.req.Upgrade) == 0
}

// repeatAfter sends the request again if the rule wants that after such an
// answer.
func (x *Exchange) repeatAfter(h *message.Head, code int) bool {
	if !x.canRepeat() {
		return false
	}
	r := &x.hit.Policy.Retry
	if !r.Statuses.Has(h.Status) && !(code >= 0 && r.Codes.Has(code)) {
		return false
	}
	up := x.up
	x.up = nil
	if !x.repeat(r.Backoff) {
		x.up = up
		return false
	}
	x.left()
	up.Abort(message.Cancel)
	return true
}

// repeat sends the request again after a pause, if the rule and the budget allow
// it.
func (x *Exchange) repeat(least time.Duration) bool {
	if !x.canRepeat() {
		return false
	}
	if !x.from.Upstream.budget.spend(x.lane.now()) {
		x.overBudget = true
		return false
	}
	pause := max(least, retryBackoff) << min(x.tries, 8)
	pause = min(pause, max(backoffCap, least))
	pause += time.Duration(float64(pause) * 0.1 * float64(x.lane.random()>>11) / (1 << 53))
	x.tries++
	x.phase = pausing
	x.holdClient()
	x.until = x.lane.loop.Now() + pause
	x.arm()
	return true
}

// repeatFree sends the request again at once, because nothing of it was
// processed, or repeating it does no harm.
func (x *Exchange) repeatFree() bool {
	if x.free >= freeTries || !x.keeps || len(x.req.Upgrade) > 0 {
		return false
	}
	x.free++
	x.holdClient()
	x.phase = choosing
	x.choose()
	return true
}

// idempotent reports whether repeating the request has the effect of sending it
// once (RFC 9110, 9.2.2).
func (x *Exchange) idempotent() bool {
	switch string(x.req.Method) {
	case "GET", "HEAD", "OPTIONS", "TRACE", "PUT", "DELETE":
		return true
	}
	return false
}
