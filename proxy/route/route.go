// Package route says what is to be done with a request: by which HTTPRoute or
// GRPCRoute of the Gateway API, to which backend, how changed, how long, and
// how often again. It is pure: objects in, a Table out; a Table matches a
// message.Head and edits it, and holds no endpoint.
//
// The types of this file mirror those of gateway.networking.k8s.io/v1, field by
// field and not yet judged, so that whoever reads the objects only copies. New
// judges them: what is wrong or not supported is a Problem, never left out.
package route

import "time"

// Kind is the kind of the object that a route, or an annotation, comes from. The
// zero value means "not said": for annotations, that of a route's parent.
type Kind uint8

// The kinds.
const (
	HTTP Kind = iota + 1
	GRPC
)

// String returns the object's kind as Kubernetes writes it.
func (k Kind) String() string {
	switch k {
	case HTTP:
		return "HTTPRoute"
	case GRPC:
		return "GRPCRoute"
	default:
		return "Service"
	}
}

// Route is an HTTPRoute or a GRPCRoute. Which parent it is attached to is the
// caller's to know.
type Route struct {
	Kind            Kind
	Namespace, Name string
	Created         time.Time         // metadata.creationTimestamp: the oldest wins a tie
	Annotations     map[string]string // timeout.linkerd.io/*, retry.linkerd.io/*
	Hostnames       []string
	Rules           []Rule
}

// Rule is one of a route's rules.
type Rule struct {
	Name     string
	Matches  []Match // any of them; none: every request
	Filters  []Filter
	Backends []BackendRef // none: the parent itself
	Timeouts *TimeoutSpec
	Retry    *RetrySpec
	// Policy, if set, is all that is said of timeouts and retries: for sources that
	// have judged already.
	Policy *Policy
	// Session says that sessionPersistence is set, which is not supported.
	Session bool
}

// Match is a set of conditions that must all hold.
type Match struct {
	Path    *PathMatch   // HTTPRoute
	Headers []FieldMatch // names in any case
	Query   []FieldMatch // HTTPRoute: queryParams
	Method  string       // HTTPRoute: GET ...
	RPC     *RPCMatch    // GRPCRoute: method
}

// PathMatch is a condition on the path, without the query. Type is Exact,
// PathPrefix (also if empty) or RegularExpression; an empty Value is "/".
type PathMatch struct{ Type, Value string }

// FieldMatch is a condition on a header or a query parameter. Type is Exact
// (also if empty) or RegularExpression.
type FieldMatch struct{ Type, Name, Value string }

// RPCMatch is a condition on a gRPC method. Type is Exact (also if empty) or
// RegularExpression; an empty Service or Method is any.
type RPCMatch struct{ Type, Service, Method string }

// Filter is a change to a request or a response; the field that Type names is set.
type Filter struct {
	Type            string // RequestHeaderModifier ...; others than these are Problems
	RequestHeaders  *HeaderModifier
	ResponseHeaders *HeaderModifier
	Redirect        *RequestRedirect
	Rewrite         *URLRewrite
}

// Header is a field's name and value.
type Header struct{ Name, Value string }

// HeaderModifier changes header fields: Remove first, then Set, then Add.
type HeaderModifier struct {
	Set, Add []Header
	Remove   []string
}

// RequestRedirect answers with a redirect.
type RequestRedirect struct {
	Scheme, Hostname string
	Path             *PathModifier
	Port             int32
	StatusCode       int // 0: 302
}

// URLRewrite changes the target of a request.
type URLRewrite struct {
	Hostname string
	Path     *PathModifier
}

// PathModifier changes a path. Type is ReplaceFullPath or ReplacePrefixMatch,
// and the field of that name is set.
type PathModifier struct {
	Type                                string
	ReplaceFullPath, ReplacePrefixMatch *string
}

// BackendRef is one of a rule's backends.
type BackendRef struct {
	Group, Kind     string // only Service is supported: "" or "core", "" or "Service"
	Namespace, Name string // Namespace empty: the route's
	Port            int32
	Weight          *int32 // nil: 1
	Filters         []Filter
}

// TimeoutSpec is a rule's timeouts, in the form of the Gateway API (GEP-2257);
// empty: not said, 0s: none.
type TimeoutSpec struct{ Request, BackendRequest string }

// RetrySpec is a rule's retry stanza (GEP-1731).
type RetrySpec struct {
	Codes    []int
	Attempts *int   // nil: 1
	Backoff  string // the least wait before a retry
}
