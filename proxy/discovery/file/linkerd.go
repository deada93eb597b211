package file

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The types of this file are those of policy.linkerd.io, as far as they are read;
// Linkerd publishes no Go types without its whole module.

// server is Server of v1beta1 to v1beta3.
type server struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		PodSelector              *metav1.LabelSelector `json:"podSelector,omitempty"`
		ExternalWorkloadSelector *metav1.LabelSelector `json:"externalWorkloadSelector,omitempty"`
		Port                     intstr.IntOrString    `json:"port"`
		ProxyProtocol            string                `json:"proxyProtocol,omitempty"`
		AccessPolicy             string                `json:"accessPolicy,omitempty"`
	} `json:"spec"`
	Status any `json:"status,omitempty"`
}

// objectRef names an object; Namespace is not for all of them.
type objectRef struct {
	Group     string `json:"group,omitempty"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// authorizationPolicy is AuthorizationPolicy of v1alpha1.
type authorizationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		TargetRef                  objectRef   `json:"targetRef"`
		RequiredAuthenticationRefs []objectRef `json:"requiredAuthenticationRefs"`
	} `json:"spec"`
	Status any `json:"status,omitempty"`
}

// meshTLSAuthentication is MeshTLSAuthentication of v1alpha1.
type meshTLSAuthentication struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Identities   []string    `json:"identities,omitempty"`
		IdentityRefs []objectRef `json:"identityRefs,omitempty"`
	} `json:"spec"`
	Status any `json:"status,omitempty"`
}

// network is a subnet with holes.
type network struct {
	CIDR   string   `json:"cidr"`
	Except []string `json:"except,omitempty"`
}

// networkAuthentication is NetworkAuthentication of v1alpha1.
type networkAuthentication struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Networks []network `json:"networks"`
	} `json:"spec"`
	Status any `json:"status,omitempty"`
}

// serverAuthorization is ServerAuthorization of v1beta1.
type serverAuthorization struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Server struct {
			Name     string                `json:"name,omitempty"`
			Selector *metav1.LabelSelector `json:"selector,omitempty"`
		} `json:"server"`
		Client struct {
			Networks        []network `json:"networks,omitempty"`
			Unauthenticated bool      `json:"unauthenticated,omitempty"`
			MeshTLS         *struct {
				UnauthenticatedTLS bool     `json:"unauthenticatedTLS,omitempty"`
				Identities         []string `json:"identities,omitempty"`
				ServiceAccounts    []struct {
					Name      string `json:"name"`
					Namespace string `json:"namespace,omitempty"`
				} `json:"serviceAccounts,omitempty"`
			} `json:"meshTLS,omitempty"`
		} `json:"client"`
	} `json:"spec"`
	Status any `json:"status,omitempty"`
}
