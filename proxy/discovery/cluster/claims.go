package cluster

import (
	"net/netip"
	"slices"
)

// claims are the objects that claim an address which a later one has: a pod that
// has ended still claims its own for a moment when the next one has it. When the
// later one goes, they count again. The zero value is none.
type claims[T any] map[netip.Addr][]*T

// claim gives a to o in the index.
func (c *claims[T]) claim(index map[netip.Addr]*T, a netip.Addr, o *T) {
	if before := index[a]; before != nil {
		c.hide(a, before, o)
	}
	index[a] = o
}

// hide notes that o claims a, unless it is the one that has it.
func (c *claims[T]) hide(a netip.Addr, o, has *T) {
	if o == has {
		return
	}
	if *c == nil {
		*c = claims[T]{}
	}
	(*c)[a] = append((*c)[a], o)
}

// release takes o's claim to a away.
func (c *claims[T]) release(index map[netip.Addr]*T, a netip.Addr, o *T) {
	list := slices.DeleteFunc((*c)[a], func(p *T) bool { return p == o })
	if index[a] == o {
		delete(index, a)
		if n := len(list); n > 0 {
			index[a] = list[n-1]
			list = list[:n-1]
		}
	}
	if len(list) > 0 {
		(*c)[a] = list
	} else {
		delete(*c, a)
	}
}
