package kube

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// Certificate is the file with the API server's certificate and its authority.
func (a *API) Certificate() string { return filepath.Join(a.dir, "certs", "apiserver.crt") }

// Token asks for a token of a service account, as the kubelet does for a pod. It is
// valid for as long as the pod is there.
func (a *API) Token(namespace, account, pod string) string {
	a.t.Helper()
	var of struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}
	if err := a.as(Admin, http.MethodGet, "/api/v1/namespaces/"+namespace+"/pods/"+pod, nil, &of); err != nil {
		a.t.Fatal(err)
	}
	ask := fmt.Sprintf(`{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"expirationSeconds":3600,"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":%q,"uid":%q}}}`,
		pod, of.Metadata.UID)
	var answer struct {
		Status struct {
			Token string `json:"token"`
		} `json:"status"`
	}
	if err := a.as(Admin, http.MethodPost, "/api/v1/namespaces/"+namespace+"/serviceaccounts/"+account+"/token", []byte(ask), &answer); err != nil {
		a.t.Fatal(err)
	}
	return answer.Status.Token
}

// as makes a request with a token, and reads the answer into out unless that is nil.
func (a *API) as(token, method, path string, body []byte, out any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, a.URL+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := a.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var raw json.RawMessage
	if err := json.NewDecoder(resp.Body).Decode(&raw); err != nil {
		return err
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return errStatus{resp.StatusCode, string(raw)}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(raw, out)
}

// InCluster writes a program that runs another as if in a pod: with the API server's
// address in the environment, and a service account at the place where pods have
// it, in a mount namespace of its own. dir has its token and ca.crt.
func (a *API) InCluster(program, dir string) string {
	a.t.Helper()
	name := filepath.Join(a.dir, "in-cluster-"+filepath.Base(dir))
	text := fmt.Sprintf(`#!/bin/sh
export KUBERNETES_SERVICE_HOST=127.0.0.1 KUBERNETES_SERVICE_PORT=%s
exec unshare --mount --propagation private /bin/sh -ec '
at=/run/secrets/kubernetes.io/serviceaccount
mount -t tmpfs tmpfs /run
mkdir -p $at
mount --bind %s $at
exec "$0" "$@"' %s "$@"
`, a.port, dir, program)
	if err := os.WriteFile(name, []byte(text), 0o700); err != nil { //nolint:gosec // a program
		a.t.Fatal(err)
	}
	return name
}
