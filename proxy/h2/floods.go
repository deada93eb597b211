package h2

import "time"

// What a peer can make the other side hold or do, and its bound:
//
//	streams it opens                   MaxStreams, others are refused
//	streams it opens and resets        resets, below
//	streams it makes us reset          the same
//	frames that achieve nothing        bothers, below
//	answers it does not read           nothing is read while outChoked bytes are unsent
//	bodies it does not read            HighWater a stream, crowded in all, StallTimeout
//	header blocks                      MaxHead decoded, maxBlock encoded, maxPieces frames, HeadTimeout
//	fields of the table repeated       counted as decoded, stored once
//	bodies it sends                    StreamWindow a stream, ConnWindow in all
const (
	// A client that gives up streams less than early after their begin, before
	// they were answered, may do so 200 times, 100 times a second, and once more
	// for each one it lets end.
	resetBudget = 200
	resetRate   = 100
	early       = time.Second

	// Frames that move no exchange on: PING, SETTINGS, PRIORITY, empty DATA,
	// WINDOW_UPDATE beyond those that bodies need, frames of closed streams and
	// of unknown types. Those that do earn some of them.
	botherBudget = 5000
	botherRate   = 1000

	costFrame    = 1
	costSettings = 10 // all streams' windows may change
	costEmpty    = 10 // DATA or CONTINUATION without a byte
	costDrip     = 3  // WINDOW_UPDATE of less than dripWindow
	earnHead     = 10
	earnData     = 2
	earnTiny     = 1 // DATA of less than dripWindow

	dripWindow  = 256
	pieceWindow = 1 << 10 // WINDOW_UPDATE from which on it is free, if so much was sent
)

// budget is a token bucket.
type budget struct {
	level int32
	at    time.Duration
}

func (b *budget) fill(level int32, now time.Duration) { b.level, b.at = level, now }

// spend takes n tokens out of a bucket that holds size and fills at rate a
// second; false if they are not there.
func (b *budget) spend(n int32, now time.Duration, size, rate int32) bool {
	if b.level < n {
		if more := int64(now-b.at) * int64(rate) / int64(time.Second); more > 0 {
			b.level = int32(min(int64(b.level)+more, int64(size)))
			b.at = now
		}
	}
	if b.level < n {
		return false
	}
	b.level -= n
	return true
}

// earn puts n tokens in.
func (b *budget) earn(n, size int32) { b.level = min(b.level+n, size) }

// bother charges for a frame that achieves nothing; false if that was one too many.
func (l *link) bother(cost int32) bool {
	if l.bothers.spend(cost, l.loop.Now(), botherBudget, botherRate) {
		return true
	}
	l.fail(enhanceYourCalm, "too many frames that achieve nothing")
	return false
}

// upset charges for a stream that was opened in vain.
func (l *link) upset() bool {
	if !l.server || l.resets.spend(1, l.loop.Now(), resetBudget, resetRate) {
		return true
	}
	l.fail(enhanceYourCalm, "too many streams opened in vain")
	return false
}

// ending is how a stream left the table.
type ending uint32

const (
	byPeer ending = iota // both sides ended, or the peer reset it: nothing may come
	byUs                 // reset by us: what is under way is ignored
)

// closedStreams remembers the last streams that were closed: later frames of
// theirs are ignored or an error, depending on how (RFC 9113, 5.1).
type closedStreams struct {
	last [128]uint32 // number << 1 | ending
	n    uint32
}

func (c *closedStreams) add(id uint32, how ending) {
	c.last[c.n%uint32(len(c.last))] = id<<1 | uint32(how)
	c.n++
}

// find returns how the stream ended. One that is not known was never opened, or
// closed so long ago that it does not matter: full tells that this may be.
func (c *closedStreams) find(id uint32) (how ending, known, full bool) {
	for _, v := range c.last {
		if v>>1 == id {
			return ending(v & 1), true, false
		}
	}
	return 0, false, c.n > uint32(len(c.last))
}
