// Package kubeconfig says how to talk to a Kubernetes API server: as kubectl does,
// or as a pod.
package kubeconfig

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Load reads a file as kubectl has it; context is one of its contexts, empty: its
// current one. Without a file it is the service account of the pod that this
// process is in.
func Load(file, context string) (*rest.Config, error) {
	if file != "" {
		c, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(
			&clientcmd.ClientConfigLoadingRules{ExplicitPath: file}, &clientcmd.ConfigOverrides{CurrentContext: context}).ClientConfig()
		if err != nil {
			return nil, fmt.Errorf("kubeconfig %s: %w", file, err)
		}
		return c, nil
	}
	c, err := rest.InClusterConfig()
	switch {
	case errors.Is(err, rest.ErrNotInCluster):
		return nil, errors.New("this is no pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set; name a kubeconfig")
	case err != nil:
		return nil, fmt.Errorf("the pod's service account: %w", err)
	}
	return c, nil
}
