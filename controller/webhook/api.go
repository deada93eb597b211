package webhook

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"time"
)

// API is an API server, asked for the two objects that a webhook needs.
type API struct {
	HTTP *http.Client // with its credentials
	Base *url.URL
	// Configuration is the name of the MutatingWebhookConfiguration.
	Configuration string

	mu     sync.Mutex
	spaces map[string]space
}

// space is what a namespace said a moment ago: pods come in crowds.
type space struct {
	annotations map[string]string
	until       time.Time
}

// keepSpace is how long what a namespace says counts.
const keepSpace = 2 * time.Second

func (a *API) do(ctx context.Context, method, path string, body any, to any) (int, error) {
	var text io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return 0, err
		}
		text = bytes.NewReader(raw)
	}
	r, err := http.NewRequestWithContext(ctx, method, a.Base.JoinPath(path).String(), text)
	if err != nil {
		return 0, err
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json-patch+json") // the one thing that is written
	}
	answer, err := a.HTTP.Do(r)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(answer.Body, maxReview))
	if err != nil {
		return 0, err
	}
	if answer.StatusCode >= 300 {
		var s struct {
			Message string `json:"message"`
		}
		_ = json.Unmarshal(raw, &s) // else the number has to do
		return answer.StatusCode, fmt.Errorf("%s %s: %s: %s", method, path, answer.Status, s.Message)
	}
	if to == nil {
		return answer.StatusCode, nil
	}
	return answer.StatusCode, json.Unmarshal(raw, to)
}

// Namespace reads the annotations of a namespace.
func (a *API) Namespace(ctx context.Context, name string) (map[string]string, error) {
	now := time.Now()
	a.mu.Lock()
	known, ok := a.spaces[name]
	a.mu.Unlock()
	if ok && now.Before(known.until) {
		return known.annotations, nil
	}
	var n struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	}
	if _, err := a.do(ctx, http.MethodGet, "/api/v1/namespaces/"+url.PathEscape(name), nil, &n); err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.spaces == nil || len(a.spaces) > 1000 {
		a.spaces = map[string]space{}
	}
	a.spaces[name] = space{n.Metadata.Annotations, now.Add(keepSpace)}
	return n.Metadata.Annotations, nil
}

// attempts is how often the bundle is written when another replica writes it, too.
const attempts = 10

// Trust puts certificates into the webhooks of the MutatingWebhookConfiguration,
// beside those of other replicas.
func (a *API) Trust(ctx context.Context, bundle []byte) error {
	path := "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/" + url.PathEscape(a.Configuration)
	var err error
	for range attempts {
		var object map[string]any
		if _, err = a.do(ctx, http.MethodGet, path, nil, &object); err != nil {
			return err
		}
		ops, found := trusting(object, bundle)
		if !found {
			return fmt.Errorf("MutatingWebhookConfiguration %s has no webhook", a.Configuration)
		}
		if len(ops) == 0 {
			return nil
		}
		var code int
		if code, err = a.do(ctx, http.MethodPatch, path, ops, nil); err == nil || code != http.StatusConflict && code != http.StatusUnprocessableEntity {
			return err
		}
	}
	return err
}

// operation is one of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// trusting is what adds the certificates to every webhook of the object; it
// fails if somebody else has written meanwhile.
func trusting(object map[string]any, bundle []byte) (ops []operation, found bool) {
	meta, _ := object["metadata"].(map[string]any)
	list, _ := object["webhooks"].([]any)
	for i, one := range list {
		hook, _ := one.(map[string]any)
		client, _ := hook["clientConfig"].(map[string]any)
		if client == nil {
			continue
		}
		found = true
		text, _ := client["caBundle"].(string)
		before, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			before = nil
		}
		after, differs := Merge(before, bundle, time.Now())
		if differs {
			if len(ops) == 0 {
				ops = append(ops, operation{"test", "/metadata/resourceVersion", meta["resourceVersion"]})
			}
			ops = append(ops, operation{"add", fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), base64.StdEncoding.EncodeToString(after)})
		}
	}
	return ops, found
}
