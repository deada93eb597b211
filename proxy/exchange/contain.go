package exchange

import (
	"runtime/debug"

	"github.com/meshctl/meshctl/proxy/message"
)

// contain ends this exchange, and no other, for a panic in it: the loop would
// end the connection whose event it was, and the other side would wait for ever.
func (x *Exchange) contain() {
	v := recover()
	if v == nil {
		return
	}
	if told := x.lane.Panicked; told != nil {
		told(v, debug.Stack())
	}
	defer func() { _ = recover() }() // what is broken may break again
	up, down := x.up, x.down
	if down == nil {
		return
	}
	x.spoilt, x.up = true, nil
	down.Abort(message.Internal)
	if up != nil {
		up.Abort(message.Cancel)
	}
	x.end(Broken, true)
}
