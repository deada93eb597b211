// Package arrows holds, as tests, the rules of the house that a compiler does not
// know: which package may import which and why, which library may be used where,
// how long files and functions get, and what never stands in a committed file.
// It has no code of its own. The table of arrows is also the map in
// docs/architecture.md; `make golden` writes it there.
package arrows
