package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/meshctl/meshctl/redirect"
)

// told is what the proxy says of one of its connections at /connections.
type told struct {
	Client   netip.AddrPort `json:"client"`
	Protocol string         `json:"protocol"`
	Detected string         `json:"detected"`
	Reason   string         `json:"reason"`
	SNI      string         `json:"sni"`
}

// String is what the connection was found to be, for people: "http/1",
// "opaque, mysql", "tls a.example".
func (t told) String() string {
	switch {
	case t.SNI != "":
		return t.Protocol + " " + t.SNI
	case t.Detected != "" && t.Detected != t.Protocol:
		return t.Protocol + ", " + t.Detected
	}
	return t.Protocol
}

// admin asks the proxy, from inside the pod: others get no /connections.
type admin struct{ client *http.Client }

func newAdmin(pod *side) *admin {
	return &admin{&http.Client{
		Timeout: patience,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				return dial(ctx, pod, netip.MustParseAddrPort(addr))
			},
		},
	}}
}

func (a *admin) get(ctx context.Context, path string, into any) error {
	ask, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:4191"+path, nil)
	if err != nil {
		return err
	}
	answer, err := a.client.Do(ask)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", path, answer.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(answer.Body).Decode(into)
}

// find returns what the proxy says of the connection of a client; ok is false
// when it has none.
func (a *admin) find(ctx context.Context, of netip.AddrPort) (t told, ok bool, err error) {
	var all []told
	if err := a.get(ctx, "/connections", &all); err != nil {
		return told{}, false, fmt.Errorf("asking the proxy: %w", err)
	}
	for _, t := range all {
		if t.Client == of {
			return t, true, nil
		}
	}
	return told{}, false, nil
}

// kernel is what the kernel holds of our rules.
type kernel struct {
	backend string
	rules   int
	hits    map[string]uint64 // by the rule's ID
}

// readKernel looks without changing anything.
func readKernel(ctx context.Context, pod *side) (kernel, error) {
	choice, err := redirect.Pick(ctx, pod.Namespace, redirect.Options{})
	if err != nil {
		return kernel{}, err
	}
	states, err := choice.Read(ctx)
	if err != nil {
		return kernel{}, err
	}
	k := kernel{hits: map[string]uint64{}}
	for _, s := range states {
		if !s.Present {
			continue
		}
		k.backend = s.Backend
		k.rules += len(s.Counters)
		for _, c := range s.Counters {
			k.hits[c.ID] += c.Packets
		}
	}
	return k, nil
}

// gone waits until nothing of ours is left in the kernel.
func gone(ctx context.Context, pod *side) error {
	for deadline := time.Now().Add(patience); ; {
		k, err := readKernel(ctx, pod)
		switch {
		case err != nil:
			return err
		case k.backend == "":
			return nil
		case time.Now().After(deadline):
			return errors.New("the proxy is gone and its rules are still there")
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return err
		}
	}
}
