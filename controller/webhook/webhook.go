// Package webhook answers an API server that asks, for each new pod, what to change
// of it: mutating admission, admission.k8s.io/v1. What is changed is package
// inject's business; here are the question and the answer, and the certificate
// that the API server has to trust.
package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/meshctl/meshctl/inject"
	"github.com/meshctl/meshctl/inject/patch"
)

// maxReview is how large a question may be: etcd takes objects up to 1.5 MiB.
const maxReview = 8 << 20

// Handler answers POST /inject.
type Handler struct {
	Options inject.Options
	// Namespace reads the annotations of a namespace.
	Namespace func(ctx context.Context, name string) (map[string]string, error)
	Log       *slog.Logger

	injected, skipped, refused, failed atomic.Uint64
}

// review is an AdmissionReview, as far as it is needed: importing its types would
// register groups at the start of every program.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID       string `json:"uid"`
	Operation string `json:"operation"`
	Namespace string `json:"namespace"`
	Kind      struct {
		Group string `json:"group"`
		Kind  string `json:"kind"`
	} `json:"kind"`
	Object json.RawMessage `json:"object"`
}

type response struct {
	UID       string         `json:"uid"`
	Allowed   bool           `json:"allowed"`
	PatchType string         `json:"patchType,omitempty"`
	Patch     []byte         `json:"patch,omitempty"`
	Status    *failureStatus `json:"status,omitempty"`
	Warnings  []string       `json:"warnings,omitempty"`
}

type failureStatus struct {
	Message string `json:"message"`
	Code    int32  `json:"code"`
}

const reviewVersion = "admission.k8s.io/v1"

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		http.Error(w, "POST an AdmissionReview", http.StatusMethodNotAllowed)
		return
	}
	var in review
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxReview)).Decode(&in)
	switch {
	case err != nil:
		http.Error(w, "no AdmissionReview: "+err.Error(), http.StatusBadRequest)
		return
	case in.Request == nil || in.Kind != "AdmissionReview" || in.APIVersion != reviewVersion:
		http.Error(w, "want an AdmissionReview of "+reviewVersion+" with a request", http.StatusBadRequest)
		return
	}
	out, err := json.Marshal(review{APIVersion: reviewVersion, Kind: "AdmissionReview", Response: h.Review(r.Context(), in.Request)})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out) // the API server has gone
}

// Review answers one question. A pod that cannot have a proxy, and an annotation
// with a wrong value, are refused, and the answer says what to do: a pod that was
// to be meshed does not start without. Anything but a new pod is allowed as it is.
func (h *Handler) Review(ctx context.Context, in *request) *response {
	out := &response{UID: in.UID, Allowed: true}
	if in.Kind.Group != "" || in.Kind.Kind != "Pod" || in.Operation != "CREATE" {
		return out
	}
	result, err := h.inject(ctx, in)
	for _, warning := range result.Warnings {
		out.Warnings = append(out.Warnings, "meshctl: "+warning.Text)
	}
	problem, impossible := errors.AsType[*inject.Problem](err)
	switch {
	case impossible:
		h.refused.Add(1)
		out.Allowed, out.Status = false, &failureStatus{Message: "meshctl: " + problem.Error(), Code: http.StatusUnprocessableEntity}
	case err != nil:
		h.failed.Add(1)
		h.Log.Error("a pod could not be looked at", "namespace", in.Namespace, "err", err)
		out.Allowed, out.Status = false, &failureStatus{Message: "meshctl: " + err.Error(), Code: http.StatusInternalServerError}
	case len(result.Patch) == 0:
		h.skipped.Add(1)
	default:
		if out.Patch, err = json.Marshal(result.Patch); err != nil {
			out.Allowed, out.Status = false, &failureStatus{Message: "meshctl: " + err.Error(), Code: http.StatusInternalServerError}
			break
		}
		out.PatchType = "JSONPatch"
		h.injected.Add(1)
	}
	return out
}

func (h *Handler) inject(ctx context.Context, in *request) (inject.Result, error) {
	decoded, err := patch.Decode(in.Object)
	if err != nil {
		return inject.Result{}, fmt.Errorf("reading the pod: %w", err)
	}
	pod, ok := decoded.(map[string]any)
	if !ok {
		return inject.Result{}, errors.New("reading the pod: it is no object")
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	annotations, err := h.Namespace(ctx, in.Namespace)
	if err != nil {
		return inject.Result{}, fmt.Errorf("reading namespace %s: %w", in.Namespace, err)
	}
	return inject.Pod(pod, inject.Namespace{Name: in.Namespace, Annotations: annotations}, h.Options)
}

// WriteMetrics writes the counters in Prometheus' text format.
func (h *Handler) WriteMetrics(w io.Writer) {
	fmt.Fprint(w, "# HELP meshctl_webhook_pods_total Pods that the API server asked about, by result.\n# TYPE meshctl_webhook_pods_total counter\n")
	for result, n := range map[string]uint64{"injected": h.injected.Load(), "skipped": h.skipped.Load(), "refused": h.refused.Load(), "error": h.failed.Load()} {
		fmt.Fprintf(w, "meshctl_webhook_pods_total{result=%q} %d\n", result, n)
	}
}
