package balance

import (
	"math"
	"time"
)

// An estimate is a latency and the time of its last sample, in one word so that
// both change at once: the latency in milliseconds as float32 below, the time
// in ticks of 1 ms above.
//
// The time wraps after 49 days, and is read as signed: an estimate up to a
// second in the future comes from a loop whose clock is ahead, any other is so
// old that nothing is left of it.

const ahead = -1000 // ticks

// newborn is the time of an estimate that nobody has looked at yet; its decay
// begins when somebody does. ticks never returns it.
const newborn = 0

func bits(ms float64) uint32 { return math.Float32bits(float32(ms)) }

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// ticks is a time in milliseconds.
func ticks(now time.Duration) uint32 {
	if t := uint32(now / time.Millisecond); t != newborn {
		return t
	}
	return newborn + 1
}

func pack(ms uint32, tick uint32) uint64 { return uint64(tick)<<32 | uint64(ms) }

func unpack(e uint64) (ms float64, tick uint32) {
	return float64(math.Float32frombits(uint32(e))), uint32(e >> 32)
}

// weight is what is left of a sample made at then.
func weight(then, now uint32, decay float64) float64 {
	switch age := int32(now - then); {
	case then == newborn, age <= 0 && age >= ahead:
		return 1
	case age < 0:
		return 0
	default:
		return expMinus(float64(age) / decay)
	}
}

// expMinus is e to the power of -x. A busy endpoint is looked at again within
// a few milliseconds, where three terms are as exact as a float32 can tell.
func expMinus(x float64) float64 {
	if x < 1.0/256 {
		return 1 - x + x*x/2
	}
	return math.Exp(-x)
}

// decayed is the latency in milliseconds as it counts now: an endpoint that got
// nothing for long is worth a try.
func decayed(e uint64, now uint32, decay float64) float64 {
	ms, then := unpack(e)
	return ms * weight(then, now, decay)
}

// observed is the estimate after a sample: a higher latency counts at once, a
// lower one by the age of what it replaces.
func observed(e uint64, sample float64, now uint32, decay float64) uint64 {
	ms, then := unpack(e)
	if sample > ms {
		ms = sample
	} else {
		w := weight(then, now, decay)
		ms = ms*w + sample*(1-w)
	}
	return pack(bits(ms), now)
}
