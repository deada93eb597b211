package conn

// Local returns the loop's own T, made zero when it is first asked for: the
// free lists and scratch values that a room keeps per loop, with no lock. It is
// called on the loop's goroutine, once per connection.
func Local[T any](l *Loop) *T {
	for _, v := range l.locals {
		if t, ok := v.(*T); ok {
			return t
		}
	}
	t := new(T)
	l.locals = append(l.locals, t)
	return t
}
