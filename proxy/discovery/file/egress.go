package file

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// egressNetwork is EgressNetwork of policy.linkerd.io/v1alpha1, as far as it is
// read; Linkerd publishes no Go type without its whole module.
type egressNetwork struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		TrafficPolicy string `json:"trafficPolicy"`
		Networks      []struct {
			CIDR   string   `json:"cidr"`
			Except []string `json:"except,omitempty"`
		} `json:"networks,omitempty"`
	} `json:"spec"`
	Status any `json:"status,omitempty"`
}
