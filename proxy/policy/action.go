package policy

import (
	"fmt"
	"strings"

	"github.com/meshctl/meshctl/internal/ports"
)

// Action is what becomes of a connection that does not turn out to be HTTP. The
// zero value means "not said".
type Action uint8

// The actions.
const (
	Open  Action = iota + 1 // it is relayed as TCP, if a Server-level authorization allows that
	Close                   // it is closed
)

// String returns the word that flags and annotations have.
func (a Action) String() string {
	switch a {
	case Open:
		return "open"
	case Close:
		return "close"
	default:
		return ""
	}
}

// ParseAction reads open or close.
func ParseAction(text string) (Action, error) {
	switch text {
	case "open":
		return Open, nil
	case "close":
		return Close, nil
	}
	return 0, fmt.Errorf("%q: want open or close", text)
}

// Actions says for each port what becomes of connections that do not turn out to
// be HTTP. The zero value is open everywhere.
type Actions struct {
	rest   Action    // of the ports that are not in except; not said: open
	except ports.Set // have the other one
}

// ParseActions reads "open", "close", or one of them for some ports and so the
// other for the rest: "close=8080,9000-9100".
func ParseActions(text string) (Actions, error) {
	word, list, some := strings.Cut(text, "=")
	a, err := ParseAction(strings.TrimSpace(word))
	if err != nil {
		return Actions{}, fmt.Errorf("%w, or one of them for a list of ports as in close=8080,9000-9100", err)
	}
	if !some {
		return Actions{rest: a}, nil
	}
	set, err := ports.Parse(list)
	if err != nil {
		return Actions{}, err
	}
	if set.Len() == 0 {
		return Actions{}, fmt.Errorf("%q: no port after =", text)
	}
	return Actions{rest: Open + Close - a, except: set}, nil
}

// Of returns the action for a port.
func (a Actions) Of(port uint16) Action {
	rest := a.rest
	if rest == 0 {
		rest = Open
	}
	if a.except.Contains(port) {
		return Open + Close - rest
	}
	return rest
}

// String is what ParseActions reads.
func (a Actions) String() string {
	if a.except.Len() > 0 {
		return (Open + Close - max(a.rest, Open)).String() + "=" + a.except.String()
	}
	return max(a.rest, Open).String()
}
