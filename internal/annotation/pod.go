package annotation

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/meshctl/meshctl/internal/ports"
	"github.com/meshctl/meshctl/internal/subnet"
)

// Pod is what a pod's annotations say. A nil pointer means "not said". Lists of
// skipped ports are kept as they were written, because what they add to is the
// reader's.
type Pod struct {
	OpaquePorts               *Ports
	SkipInboundPorts          *string // by ports.ParseOver
	SkipOutboundPorts         *string // by ports.ParseOver
	SkipSubnets               []netip.Prefix
	InboundPort, OutboundPort *uint16
	AdminPort, ControlPort    *uint16
	ProxyUID, ProxyGID        *uint32
	ShutdownGrace             *time.Duration
	ConnectTimeout            *time.Duration // outbound
	InboundConnectTimeout     *time.Duration
	NoInboundDetectTimeout    *bool // detection may last for ever
	NoOutboundDetectTimeout   *bool
	LogLevel, LogFormat       *string
	DefaultInboundPolicy      *string // one of Linkerd's words
}

// Note is something to tell about an annotation, at a line of its file.
type Note struct {
	Line int
	Key  string
	Err  error // a *Misspelt, ErrUnused, or what is wrong with the value
}

// Error is the text of the note, with its line.
func (n Note) Error() string {
	if n.Misspelt() {
		return fmt.Sprintf("line %d: %v", n.Line, n.Err)
	}
	return fmt.Sprintf("line %d: %s: %v", n.Line, n.Key, n.Err)
}

// Wrong reports whether the note is about a value that cannot be used, not a
// key that has no effect.
func (n Note) Wrong() bool {
	return !n.Misspelt() && !errors.Is(n.Err, ErrUnused)
}

// Read returns what entries say. An annotation with a wrong value counts as not
// said; it is in the notes, as are misspelt keys.
func Read(entries []Entry) (Pod, []Note) {
	var p Pod
	var notes []Note
	for _, e := range entries {
		err := Check(e.Key, e.Value)
		if err != nil {
			notes = append(notes, Note{e.Line, e.Key, err})
			continue
		}
		p.take(e)
	}
	return p, notes
}

// take sets the field of one entry that Check has found right.
func (p *Pod) take(e Entry) {
	switch e.Key {
	case OpaquePorts:
		p.OpaquePorts = said(ParsePorts(e.Value))
	case SkipInboundPorts:
		p.SkipInboundPorts = &e.Value
	case SkipOutboundPorts:
		p.SkipOutboundPorts = &e.Value
	case SkipSubnets:
		p.SkipSubnets, _ = subnet.Parse(e.Value)
	case InboundPort:
		p.InboundPort = said(ParsePort(e.Value))
	case OutboundPort:
		p.OutboundPort = said(ParsePort(e.Value))
	case AdminPort:
		p.AdminPort = said(ParsePort(e.Value))
	case ControlPort:
		p.ControlPort = said(ParsePort(e.Value))
	case ProxyUID:
		p.ProxyUID = said(ParseID(e.Value))
	case ProxyGID:
		p.ProxyGID = said(ParseID(e.Value))
	case ShutdownGrace:
		p.ShutdownGrace = said(ParseDuration(e.Value))
	case ConnectTimeout:
		p.ConnectTimeout = said(ParseDuration(e.Value))
	case InboundConnectTimeout:
		p.InboundConnectTimeout = said(ParseDuration(e.Value))
	case NoInboundDetectTimeout:
		p.NoInboundDetectTimeout = said(ParseBool(e.Value))
	case NoOutboundDetectTimeout:
		p.NoOutboundDetectTimeout = said(ParseBool(e.Value))
	case LogLevel:
		p.LogLevel = &e.Value
	case LogFormat:
		p.LogFormat = &e.Value
	case DefaultInboundPolicy:
		p.DefaultInboundPolicy = &e.Value
	}
}

// said is a value that has been checked before.
func said[T any](v T, _ error) *T { return &v }

// Skips puts a list that Read has found right over a default.
func Skips(list *string, def ports.Set) ports.Set {
	if list == nil {
		return def
	}
	set, err := ports.ParseOver(*list, def)
	if err != nil {
		return def
	}
	return set
}

// Misspelt reports whether the note is about a key that is not known.
func (n Note) Misspelt() bool {
	_, misspelt := errors.AsType[*Misspelt](n.Err)
	return misspelt
}
