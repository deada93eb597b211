package file

import (
	"fmt"

	"github.com/meshctl/meshctl/proxy/discovery"
)

// Code names a kind of problem, for those who filter `meshctl check`.
type Code string

// The codes. Those above the line break a load: the last good state is kept.
const (
	Unreadable  Code = "unreadable"  // a file or directory
	Syntax      Code = "syntax"      // neither YAML nor JSON
	FieldType   Code = "field-type"  // a field of the wrong type
	BadValue    Code = "bad-value"   // a field with a value that cannot be
	Unsupported Code = "unsupported" // a route that asks for what is not done here
	// ---
	UnknownField    Code = "unknown-field"       // a misspelt field, or one of a later version
	MisspeltKey     Code = "misspelt-annotation" // with a suggestion
	UnknownKey      Code = "unknown-annotation"
	BadAnnotation   Code = "bad-annotation" // its value is wrong: it counts as not there
	UnknownAppProto Code = "unknown-app-protocol"
	Contradiction   Code = "contradiction" // two objects declare a port differently
	Twice           Code = "twice"         // two objects claim the same
	NoSlices        Code = "no-endpoint-slices"
	NoBackend       Code = "no-backend"          // of a route
	UnknownRef      Code = "unknown-reference"   // of a policy
	NoTarget        Code = "no-target"           // a policy or a route is for nothing
	Overlap         Code = "overlapping-servers" // two Servers select one port
	SelectsNothing  Code = "selects-nothing"     // a Server
	UnknownPortName Code = "unknown-port-name"   // of a Server
	OpenToAll       Code = "open-to-all"         // a policy that requires nothing
	NeverApplies    Code = "never-applies"       // a policy for requests where there are none
)

// breaks reports whether a problem of that code breaks a load.
func (c Code) breaks() bool {
	switch c {
	case Unreadable, Syntax, FieldType, BadValue, Unsupported:
		return true
	}
	return false
}

// Problem is something wrong with a file or an object in it.
type Problem struct {
	Code   Code
	Object discovery.Object // with file and line; without a kind if there is no object
	Field  string           // "spec.ports[1].appProtocol"; empty if it is no field
	Text   string
}

// Breaks reports whether the load fails for it; other problems are warnings.
func (p Problem) Breaks() bool { return p.Code.breaks() }

// Error is the whole line: file, line, object, field and what is wrong.
func (p Problem) Error() string {
	s := p.Object.Place()
	if o := p.Object.String(); o != "" {
		s += ": " + o
	}
	if p.Field != "" {
		s += ": " + p.Field
	}
	return fmt.Sprintf("%s: %s [%s]", s, p.Text, p.Code)
}
