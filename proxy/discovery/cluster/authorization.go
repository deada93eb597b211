package cluster

import "github.com/meshctl/meshctl/proxy/policy"

// Policies are the objects that say who may call; they are not to be changed.
func (s *Snapshot) Policies() policy.Objects { return s.policies }

// PolicyPod is what a pod has to do with policy; nil: it is not known. The picture
// has to be for everyone.
func (s *Snapshot) PolicyPod(namespace, pod string) *policy.Pod { return s.own[name{namespace, pod}] }
