// Package live reads the objects of a running cluster for package lint: by plain
// lists, page by page, as JSON. It watches nothing and keeps no connection.
package live

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/meshctl/meshctl/internal/kubeconfig"
	"github.com/meshctl/meshctl/lint"
)

// Config says which cluster, and how much of it.
type Config struct {
	Kubeconfig string // a file as kubectl has it; empty: the pod's own service account
	Context    string // of the file; empty: its current one
	Namespace  string // only this one; empty: all
}

// Cluster is what was read.
type Cluster struct {
	Objects  []*lint.Object
	Findings []lint.Finding // of objects that could not be read
	LeftOut  []string       // what this user may not list, in words
	Minor    int            // 37 of Kubernetes 1.37
}

// group is an API group with what is read of it, by the names in addresses. Groups of
// Kubernetes itself have a version; of the others the server says which it prefers.
type group struct {
	name, version string
	resources     []string
}

func groups() []group {
	return []group{
		{"", "v1", []string{"namespaces", "pods", "services", "serviceaccounts", "replicationcontrollers"}},
		{"apps", "v1", []string{"deployments", "statefulsets", "daemonsets", "replicasets"}},
		{"batch", "v1", []string{"jobs", "cronjobs"}},
		{"networking.k8s.io", "v1", []string{"networkpolicies"}},
		{"policy.linkerd.io", "", []string{"servers", "authorizationpolicies", "meshtlsauthentications", "networkauthentications", "egressnetworks", "httproutes"}},
		{"gateway.networking.k8s.io", "", []string{"httproutes", "grpcroutes"}},
	}
}

// page is how many objects one answer has; maxPage how many bytes it may have.
const (
	page    = 500
	maxPage = 256 << 20
)

// Read reads a cluster. Groups that the server does not have are left out.
func Read(ctx context.Context, cfg Config) (*Cluster, error) {
	config, err := kubeconfig.Load(cfg.Kubeconfig, cfg.Context)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "meshctl lint"
	web, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("the client for %s: %w", config.Host, err)
	}
	defer web.CloseIdleConnections()
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("the address %s: %w", config.Host, err)
	}
	r := &reader{web: web, base: base, namespace: cfg.Namespace}
	var version struct{ Minor string }
	if err := r.get(ctx, "/version", nil, &version); err != nil {
		return nil, err
	}
	r.out.Minor, _ = strconv.Atoi(strings.TrimRight(version.Minor, "+")) // 0: not known
	for _, g := range groups() {
		if err := r.group(ctx, g); err != nil {
			return nil, err
		}
	}
	return &r.out, nil
}

type reader struct {
	web       *http.Client
	base      *url.URL
	namespace string
	out       Cluster
}

func (r *reader) group(ctx context.Context, g group) error {
	root := "/apis/" + g.name
	if g.name == "" {
		root = "/api"
	}
	var have []string
	if g.version == "" {
		var api metav1.APIGroup
		err := r.get(ctx, root, nil, &api)
		if is(err, http.StatusNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		g.version = api.PreferredVersion.Version
		for _, v := range slices.Concat([]string{g.version}, versions(api)) {
			var list metav1.APIResourceList
			if err := r.get(ctx, root+"/"+v, nil, &list); err != nil {
				return err
			}
			for _, res := range list.APIResources {
				if slices.Contains(g.resources, res.Name) && !slices.ContainsFunc(have, func(h string) bool { return strings.HasSuffix(h, "/"+res.Name) }) {
					have = append(have, v+"/"+res.Name)
				}
			}
		}
	} else {
		for _, res := range g.resources {
			have = append(have, g.version+"/"+res)
		}
	}
	for _, res := range have {
		version, name, _ := strings.Cut(res, "/")
		if err := r.list(ctx, root+"/"+version, name); err != nil {
			return err
		}
	}
	return nil
}

func versions(g metav1.APIGroup) []string {
	var out []string
	for _, v := range g.Versions {
		if v.Version != g.PreferredVersion.Version {
			out = append(out, v.Version)
		}
	}
	return out
}

// list reads all objects of one resource.
func (r *reader) list(ctx context.Context, root, resource string) error {
	path := root + "/" + resource
	query := url.Values{"limit": {strconv.Itoa(page)}}
	switch {
	case r.namespace == "":
	case resource == "namespaces":
		query.Set("fieldSelector", "metadata.name="+r.namespace)
	default:
		path = root + "/namespaces/" + r.namespace + "/" + resource
	}
	for {
		var raw json.RawMessage
		err := r.get(ctx, path, query, &raw)
		if is(err, http.StatusForbidden) || is(err, http.StatusNotFound) {
			r.out.LeftOut = append(r.out.LeftOut, err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		objects, wrong := lint.Parse("", raw, "")
		r.out.Objects, r.out.Findings = append(r.out.Objects, objects...), append(r.out.Findings, wrong...)
		var head struct {
			Metadata metav1.ListMeta `json:"metadata"`
		}
		if err := json.Unmarshal(raw, &head); err != nil || head.Metadata.Continue == "" {
			return err
		}
		query.Set("continue", head.Metadata.Continue)
	}
}

// refused is an answer that is no success.
type refused struct {
	path, text string
	code       int
}

func (e *refused) Error() string { return fmt.Sprintf("%s: %d %s", e.path, e.code, e.text) }

func is(err error, code int) bool {
	r, ok := errors.AsType[*refused](err)
	return ok && r.code == code
}

// timeout is for one answer.
const timeout = time.Minute

func (r *reader) get(ctx context.Context, path string, query url.Values, to any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	at := r.base.JoinPath(path)
	at.RawQuery = query.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := r.web.Do(req)
	if err != nil {
		return fmt.Errorf("asking the API server: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxPage))
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	if resp.StatusCode != http.StatusOK {
		var status metav1.Status
		if json.Unmarshal(text, &status) != nil || status.Message == "" {
			status.Message = http.StatusText(resp.StatusCode)
		}
		return &refused{path: path, code: resp.StatusCode, text: status.Message}
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s answers with what is no JSON: %w", path, err)
	}
	return nil
}
