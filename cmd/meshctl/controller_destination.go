package main

import (
	"os"

	"github.com/spf13/pflag"

	"github.com/meshctl/meshctl/proxy"
)

// registerDestination adds the flags of who is asked what a destination is.
func registerDestination(f *pflag.FlagSet, c *proxy.Config) {
	f.StringSliceVar(&c.Destination.Addrs, "destination", nil, `HOST:PORT of a control plane that says what a destination is and who may call, instead of --resources: "meshctl controller", or Linkerd's; several are tried in turn`)
	f.StringVar(&c.Destination.Name, "destination-name", "", "identity that the control plane has to show; needed unless it is on loopback")
	f.DurationVar(&c.Destination.Idle, "destination-idle", 0, "how long the control plane is asked about what nothing goes to any more; 0 = 5s")
}

// destinationOf says where this proxy is, as the downward API has it.
func destinationOf(c *proxy.Config) {
	c.Destination.Pod, c.Destination.Node = os.Getenv("POD_NAME"), os.Getenv("NODE_NAME")
}
