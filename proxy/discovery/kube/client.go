package kube

import (
	"encoding/json"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/meshctl/meshctl/internal/kubeconfig"
)

// client talks to one API server. It knows only the few kinds that are watched:
// client-go's own client registers every kind of Kubernetes when a program starts.
type client struct {
	host   string
	config *rest.Config
	http   *http.Client
	scheme *runtime.Scheme
	codecs serializer.CodecFactory
}

// agent is how the API server's logs call a proxy.
const agent = "meshctl"

func newClient(cfg Config) (*client, error) {
	c := cfg.REST
	if c == nil {
		var err error
		if c, err = kubeconfig.Load(cfg.Kubeconfig, cfg.Context); err != nil {
			return nil, err
		}
	}
	c = rest.CopyConfig(c)
	c.UserAgent, c.QPS, c.WarningHandler = agent, -1, rest.NoWarnings{} // a dozen watches need no limit
	web, err := rest.HTTPClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("the client for %s: %w", c.Host, err)
	}
	s := runtime.NewScheme()
	core, slices := schema.GroupVersion{Version: "v1"}, schema.GroupVersion{Group: "discovery.k8s.io", Version: "v1"}
	s.AddKnownTypes(core, &corev1.Service{}, &corev1.ServiceList{}, &corev1.Pod{}, &corev1.PodList{}, &corev1.Namespace{}, &corev1.NamespaceList{}, &metav1.Status{})
	s.AddKnownTypes(slices, &discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{})
	metav1.AddToGroupVersion(s, core)
	metav1.AddToGroupVersion(s, slices)
	return &client{host: c.Host, config: c, http: web, scheme: s, codecs: serializer.NewCodecFactory(s)}, nil
}

func (c *client) close() { c.http.CloseIdleConnections() }

// of returns a client for a group and version; custom ones are kept as JSON.
func (c *client) of(gv schema.GroupVersion, custom bool) (*rest.RESTClient, error) {
	cfg := rest.CopyConfig(c.config)
	cfg.GroupVersion, cfg.APIPath = &gv, "/apis"
	if gv.Group == "" {
		cfg.APIPath = "/api"
	}
	if custom {
		cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
		cfg.NegotiatedSerializer = c.raw(gv)
	} else {
		cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
		cfg.NegotiatedSerializer = c.codecs.WithoutConversion()
	}
	return rest.RESTClientForConfigAndClient(cfg, c.http)
}

// raw is a serializer that leaves the objects of one group as they are.
func (c *client) raw(gv schema.GroupVersion) runtime.NegotiatedSerializer {
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, gv)
	s.AddKnownTypes(schema.GroupVersion{Version: "v1"}, &metav1.Status{})
	for _, k := range kinds() {
		if k.group == gv.Group {
			s.AddKnownTypeWithName(gv.WithKind(k.kind), &rawObject{})
			s.AddKnownTypeWithName(gv.WithKind(k.kind+"List"), &rawList{})
		}
	}
	return serializer.NewCodecFactory(s).WithoutConversion()
}

// rawObject is a custom object: its head, and the whole of it as JSON.
type rawObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	text              []byte
}

// rawList is a list of them.
type rawList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []rawObject `json:"items"`
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *rawObject) UnmarshalJSON(text []byte) error {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        metav1.ObjectMeta `json:"metadata"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return err
	}
	o.TypeMeta, o.ObjectMeta, o.text = head.TypeMeta, head.Metadata, append([]byte{}, text...)
	return nil
}

// DeepCopyObject implements runtime.Object.
func (o *rawObject) DeepCopyObject() runtime.Object {
	out := &rawObject{TypeMeta: o.TypeMeta, text: o.text}
	o.DeepCopyInto(&out.ObjectMeta)
	return out
}

// DeepCopyObject implements runtime.Object.
func (l *rawList) DeepCopyObject() runtime.Object {
	out := &rawList{TypeMeta: l.TypeMeta}
	l.DeepCopyInto(&out.ListMeta)
	for i := range l.Items {
		out.Items = append(out.Items, *l.Items[i].DeepCopyObject().(*rawObject)) //nolint:forcetypeassert // it is made above
	}
	return out
}
