package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/cluster"
	"github.com/meshctl/meshctl/proxy/discovery/file"
	"github.com/meshctl/meshctl/proxy/discovery/kube"
	"github.com/meshctl/meshctl/proxy/policy"
)

// apiFlags say which Kubernetes API is asked for objects instead of files.
type apiFlags struct {
	kubeconfig, context string
	inCluster           bool
}

func (a *apiFlags) register(f *pflag.FlagSet) {
	f.StringVar(&a.kubeconfig, "kubeconfig", "", "read the objects from the Kubernetes API that this file names, as kubectl does, instead of --resources")
	f.StringVar(&a.context, "context", "", "context of --kubeconfig; empty: its current one")
	f.BoolVar(&a.inCluster, "kubernetes", false, "the same with the pod's own service account")
}

// asked reports whether an API is asked for.
func (a *apiFlags) asked() bool { return a.kubeconfig != "" || a.inCluster }

// config is nil if no API is asked for. resources are the files of --resources.
func (a *apiFlags) config(resources []string) (*kube.Config, error) {
	switch {
	case a.kubeconfig == "" && a.context != "":
		return nil, usagef("--context %s: name the file that has it with --kubeconfig", a.context)
	case a.kubeconfig == "" && !a.inCluster:
		return nil, nil //nolint:nilnil // nothing is asked for
	case a.kubeconfig != "" && a.inCluster:
		return nil, usagef("--kubeconfig and --kubernetes: choose one")
	case len(resources) > 0:
		return nil, usagef("--resources, and objects from the Kubernetes API: choose one")
	}
	return &kube.Config{Kubeconfig: a.kubeconfig, Context: a.context}, nil
}

// once is how long `explain` and `check` wait for the API.
const once = 30 * time.Second

// picture reads everything from the API once and lets f look at it.
func picture(cfg kube.Config, in cluster.Config, f func(*cluster.Snapshot)) (kube.State, error) {
	cfg.Cluster, cfg.Patience = in, -1
	s, err := kube.Open(cfg)
	if err != nil {
		return kube.State{}, inputError{err}
	}
	ctx, cancel := context.WithTimeout(context.Background(), once)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx, func(*discovery.Change) {})
	}()
	err = s.Wait(ctx)
	if err == nil {
		s.Read(f)
	}
	cancel()
	<-done
	if err != nil {
		return kube.State{}, inputError{fmt.Errorf("reading the Kubernetes API: %w", err)}
	}
	return s.State(), nil
}

// checkAPI looks at the objects that the API has; nothing without an API.
func (c *checkFlags) checkAPI(all *checked, api *kube.Config) error {
	if api == nil {
		return nil
	}
	var mu sync.Mutex
	var problems []file.Problem
	api.Told = func(p file.Problem) {
		mu.Lock()
		defer mu.Unlock()
		problems = append(problems, p)
	}
	in := cluster.Config{Namespace: c.namespace, Opaque: policy.DefaultOpaque(), TrustDomain: c.trustDomain}
	var between []file.Problem
	state, err := picture(*api, in, func(s *cluster.Snapshot) { between = file.Between(s) })
	if err != nil {
		return err
	}
	all.Objects = state.Objects
	problems = append(problems, between...)
	slices.SortFunc(problems, func(a, b file.Problem) int { return strings.Compare(a.Error(), b.Error()) })
	all.add(slices.CompactFunc(problems, func(a, b file.Problem) bool { return a.Error() == b.Error() }))
	return nil
}
