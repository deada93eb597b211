package controller

import (
	"testing"

	"github.com/meshctl/meshctl/proxy/discovery"
	"github.com/meshctl/meshctl/proxy/discovery/destination"
	"github.com/meshctl/meshctl/proxy/discovery/table"
)

func TestTheAPISaysWhatTheTableSays(t *testing.T) {
	table.Run(t, table.Config{Open: func(t *testing.T, namespace string) (discovery.Resolver, func(string)) {
		w := newWorld(t)
		r := w.serve("127.0.0.1:0", nil)
		_, cache := client(t, destination.Config{Addrs: []string{r.addr}, Namespace: namespace})
		return cache, w.set
	}})
}
