package exchange

import (
	"time"

	"github.com/meshctl/meshctl/proxy/message"
)

const (
	freeTries    = 2 // of what was not processed
	retryBackoff = 25 * time.Millisecond
	backoffCap   = 250 * time.Millisecond
	budgetRatio  = 0.2              // retries a request earns
	budgetFloor  = 10.0             // retries a second that need not be earned
	budgetMost   = 10 * budgetFloor // what was earned more than 10 s ago does not count
)

// budget bounds retries: they may add a fifth to what clients send, and ten a
// second on top, so that they cannot keep an endpoint down.
type budget struct {
	tokens float64
	at     time.Duration
}

// earn adds what one request and the time since the last are worth.
func (b *budget) earn(now time.Duration, ratio float64) {
	b.tokens += ratio + budgetFloor*(now-b.at).Seconds()
	b.at = now
	b.tokens = min(b.tokens, budgetMost)
}

// spend takes one retry out.
func (b *budget) spend(now time.Duration) bool {
	b.earn(now, 0)
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
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
	if !x.lane.budget.spend(x.lane.loop.Now()) {
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
