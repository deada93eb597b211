package cluster

import "github.com/meshctl/meshctl/proxy/policy"

// Policies are the objects that say who may call; they are not to be changed.
func (s *Snapshot) Policies() policy.Objects { return s.policies }
