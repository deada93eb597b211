package proxy

import (
	"testing"
	"time"

	"github.com/meshctl/meshctl/proxy/forward"
)

func TestADirectionMayHaveTimesOfItsOwn(t *testing.T) {
	c := DefaultConfig()
	c.Outbound.ConnectTimeout = 3 * time.Second
	c.Inbound.DetectTimeout = time.Hour
	if in := c.with(c.Inbound, forward.Config{}); in.DetectTimeout != time.Hour || in.ConnectTimeout != time.Second || in.Exchange.ConnectTimeout != time.Second {
		t.Errorf("inbound %+v", in)
	}
	if out := c.with(c.Outbound, forward.Config{}); out.DetectTimeout != 10*time.Second || out.ConnectTimeout != 3*time.Second || out.Exchange.ConnectTimeout != 3*time.Second {
		t.Errorf("outbound %+v", out)
	}
	if s := c.settings(); s.InboundTimes != (times{"1h0m0s", "1s"}) || s.OutboundTimes != (times{"10s", "3s"}) {
		t.Errorf("/config says %+v %+v", s.InboundTimes, s.OutboundTimes)
	}
	c.Inbound.ConnectTimeout = -1
	if c.Validate() == nil {
		t.Error("a negative time passes")
	}
}
