package exchange

import (
	"testing"

	"github.com/meshctl/meshctl/proxy/message"
)

func TestAnApplicationMaySayWhomItWantsToReach(t *testing.T) {
	bubble(t, nil, func(t *testing.T, r *rig) {
		e := r.endpoint(false) // that is not meshed, so that nobody knows who it is
		r.to(e)
		r.opener = r.lane.Serve(Client{Upstream: r.up, Port: 8080, Recorder: &r.rec, Local: true})
		s := r.client(message.HTTP11, "GET", "/", true, message.RequireID, "db.shop.serviceaccount.identity.linkerd.cluster.local")
		s.wants("502 [l5d-proxy-error: the endpoint does not have the required identity] end\n")
		if len(e.socks) != 0 {
			t.Error("it was connected to all the same")
		}
		s = r.client(message.HTTP11, "GET", "/", true)
		e.call(1).answer(200)
		s.wants("200 end\n")

		r.opener = r.lane.Serve(Client{Upstream: r.up, Port: 8080, Recorder: &r.rec}) // of somebody else: the field is the server's
		s = r.client(message.HTTP11, "GET", "/", true, message.RequireID, "whoever")
		e.call(2).answer(200)
		s.wants("200 end\n")
	})
}
