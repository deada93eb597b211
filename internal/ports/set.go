// Package ports holds sets of TCP ports as flags and annotations write them.
// A Set is merged to sorted, disjoint intervals, so that one kernel interval
// set holds it whatever the user wrote.
package ports

// Range is a closed interval of ports, Lo <= Hi, both in 1..65535.
type Range struct{ Lo, Hi uint16 }

// Set is a set of TCP ports. The zero value is the empty set. Sets are values:
// no method changes its receiver.
type Set struct{ ranges []Range }
