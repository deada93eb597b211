//go:build race

package route

// underRace: sync.Pool, which regexp keeps its machines in, then drops some of
// what it is given, so that regexp allocates now and then.
const underRace = true
