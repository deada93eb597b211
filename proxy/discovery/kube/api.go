package kube

import (
	"fmt"
	"net/http"
	"net/url"

	"k8s.io/client-go/rest"
)

// API returns a client with the Source's credentials, and where the API server is:
// for those who need an object that is not watched. It is closed with Run.
func (s *Source) API() (*http.Client, *url.URL, error) {
	base, _, err := rest.DefaultServerUrlFor(s.client.config)
	if err != nil {
		return nil, nil, fmt.Errorf("the address of %s: %w", s.client.host, err)
	}
	return s.client.http, base, nil
}
