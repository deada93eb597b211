package proxy

import (
	"cmp"
	"time"

	"github.com/meshctl/meshctl/proxy/forward"
)

// Times are those that one direction may have for itself; 0: as the Config says
// for both.
type Times struct{ DetectTimeout, ConnectTimeout time.Duration }

// of is t with what is not said filled in.
func (c *Config) of(t Times) Times {
	return Times{DetectTimeout: cmp.Or(t.DetectTimeout, c.DetectTimeout), ConnectTimeout: cmp.Or(t.ConnectTimeout, c.ConnectTimeout)}
}

// with is fc with the times of one direction.
func (c *Config) with(t Times, fc forward.Config) forward.Config {
	t = c.of(t)
	fc.DetectTimeout, fc.ConnectTimeout, fc.Exchange.ConnectTimeout = t.DetectTimeout, t.ConnectTimeout, t.ConnectTimeout
	return fc
}

// times are those of one direction, as /config shows them.
type times struct {
	DetectTimeout  string `json:"detect_timeout"`
	ConnectTimeout string `json:"connect_timeout"`
}

func (c *Config) times(t Times) times {
	t = c.of(t)
	return times{t.DetectTimeout.String(), t.ConnectTimeout.String()}
}
