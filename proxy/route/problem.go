package route

import (
	"fmt"
	"strings"
)

// Problem is what is wrong with, or not supported of, one field of a route.
type Problem struct {
	Kind            Kind
	Namespace, Name string
	Field           string // spec.rules[0].filters[1].type
	Err             error
}

// Error names the object, the field and what is wrong with it.
func (p *Problem) Error() string {
	if p.Name == "" {
		return p.Field + ": " + p.Err.Error()
	}
	return fmt.Sprintf("%s %s/%s: %s: %v", p.Kind, p.Namespace, p.Name, p.Field, p.Err)
}

// Unwrap returns what is wrong.
func (p *Problem) Unwrap() error { return p.Err }

// Problems is the error of New: all that was found, in the order of the fields.
type Problems []*Problem

// Error is one line a problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the problems.
func (ps Problems) Unwrap() []error {
	errs := make([]error, len(ps))
	for i, p := range ps {
		errs[i] = p
	}
	return errs
}

// judge collects the problems of one route.
type judge struct {
	route    *Route
	problems Problems
}

func (j *judge) wrong(field, format string, args ...any) {
	p := &Problem{Field: field, Err: fmt.Errorf(format, args...)}
	if j.route != nil {
		p.Kind, p.Namespace, p.Name = j.route.Kind, j.route.Namespace, j.route.Name
	}
	j.problems = append(j.problems, p)
}
