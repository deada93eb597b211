package main

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// names answers what pods ask: the addresses of Services by their names, of headless
// ones those of their ready endpoints. It asks the API server anew each time.
func names(listen, url, token string) error {
	socket, err := net.ListenPacket("udp", listen) // one address: answers have to come from it
	if err != nil {
		return err
	}
	n := &nameserver{url: url, token: token, client: &http.Client{Timeout: 5 * time.Second,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}} //nolint:gosec // on loopback
	b := make([]byte, 1500)
	for {
		size, from, err := socket.ReadFrom(b)
		if err != nil {
			return err
		}
		if out, err := n.answer(b[:size]); err != nil {
			fmt.Println("names:", err)
		} else if _, err := socket.WriteTo(out, from); err != nil {
			fmt.Println("names:", err)
		}
	}
}

type nameserver struct {
	url, token string
	client     *http.Client
}

func (n *nameserver) answer(question []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(question); err != nil || len(m.Questions) == 0 {
		return nil, fmt.Errorf("no question: %w", err)
	}
	q := m.Questions[0]
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionDesired: m.RecursionDesired}
	m.Additionals = nil
	name, inside := strings.CutSuffix(q.Name.String(), ".svc.cluster.local.")
	service, namespace, two := strings.Cut(name, ".")
	if !inside || !two || strings.Contains(namespace, ".") {
		m.RCode = dnsmessage.RCodeNameError
		return m.Pack()
	}
	addrs, err := n.addrs(namespace, service)
	switch {
	case err != nil:
		fmt.Println("names:", err)
		m.RCode = dnsmessage.RCodeServerFailure
	case len(addrs) == 0:
		m.RCode = dnsmessage.RCodeNameError
	case q.Type == dnsmessage.TypeA:
		for _, a := range addrs {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: dnsmessage.ClassINET, TTL: 1}, Body: &dnsmessage.AResource{A: a.As4()},
			})
		}
	}
	return m.Pack()
}

func (n *nameserver) addrs(namespace, service string) (out []netip.Addr, err error) {
	var s struct{ Spec struct{ ClusterIP string } }
	if found, err := n.get("/api/v1/namespaces/"+namespace+"/services/"+service, &s); err != nil || !found {
		return nil, err
	}
	if a, err := netip.ParseAddr(s.Spec.ClusterIP); err == nil {
		return []netip.Addr{a}, nil
	}
	var slices struct {
		Items []struct {
			Endpoints []struct {
				Addresses  []netip.Addr
				Conditions struct{ Ready bool }
			}
		}
	}
	if _, err := n.get("/apis/discovery.k8s.io/v1/namespaces/"+namespace+"/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3D"+service, &slices); err != nil {
		return nil, err
	}
	for _, slice := range slices.Items {
		for _, e := range slice.Endpoints {
			if e.Conditions.Ready {
				out = append(out, e.Addresses...)
			}
		}
	}
	return out, nil
}

func (n *nameserver) get(path string, to any) (found bool, err error) {
	req, err := http.NewRequest(http.MethodGet, n.url+path, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Authorization", "Bearer "+n.token)
	resp, err := n.client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusNotFound {
		return false, nil
	}
	if resp.StatusCode != http.StatusOK {
		return false, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return true, json.NewDecoder(resp.Body).Decode(to)
}
