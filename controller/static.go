package controller

import (
	"sync/atomic"

	"github.com/meshctl/meshctl/proxy/discovery/cluster"
)

// Static is a Picture that is replaced as a whole, as files are read.
type Static struct {
	now atomic.Pointer[cluster.Snapshot]
}

// NewStatic makes a Static that shows s.
func NewStatic(s *cluster.Snapshot) *Static {
	p := &Static{}
	p.now.Store(s)
	return p
}

// Read implements Picture.
func (p *Static) Read(f func(*cluster.Snapshot)) { f(p.now.Load()) }

// Replace shows s from now on. The Server has to be told: Change{All: true}.
func (p *Static) Replace(s *cluster.Snapshot) { p.now.Store(s) }
