package metrics

import "time"

// ControlPlane is how asking a control plane what destinations are fares.
type ControlPlane struct {
	Connected bool
	Age       time.Duration // for how long what is known may be out of date; 0: it is not
	Streams   int           // open
	Watched   int           // destinations
	Ports     int           // of the pod, about which is asked who may call
	Messages  uint64
	Requests  uint64 // streams begun
	Failures  uint64 // of streams
}

func (p *page) controlPlane() {
	p.controlConnected = p.add("meshctl_destination_connected", "1 while the destination service is connected.")
	p.controlAge = p.add("meshctl_destination_age_seconds", "For how long what the destination service said may be out of date: since the connection was lost; 0 while there is one.")
	p.controlStreams = p.add("meshctl_destination_streams", "Open streams of the destination service.")
	p.controlWatched = p.add("meshctl_destination_watched", "Destinations that the destination service is asked about.")
	p.controlPorts = p.add("meshctl_destination_ports", "Ports of the pod for which the destination service is asked who may call.")
	p.controlMessages = p.add("meshctl_destination_messages_total", "Messages of the destination service.")
	p.controlRequests = p.add("control_request_total", "Requests to the control plane; a stream is one.")
	p.controlResponses = p.add("control_response_total", "Requests to the control plane that ended, by classification: streams end by failing only.", "classification")
}

func (m *Metrics) collectControlPlane(send sender) {
	if m.cfg.ControlPlane == nil {
		return
	}
	c := m.cfg.ControlPlane()
	connected := int64(0)
	if c.Connected {
		connected = 1
	}
	send.gauge(m.page.controlConnected, connected, nil)
	send.gauge(m.page.controlAge, int64(c.Age.Seconds()), nil)
	send.gauge(m.page.controlStreams, int64(c.Streams), nil)
	send.gauge(m.page.controlWatched, int64(c.Watched), nil)
	send.gauge(m.page.controlPorts, int64(c.Ports), nil)
	send.counter(m.page.controlMessages, c.Messages, nil)
	send.counter(m.page.controlRequests, c.Requests, nil)
	send.counter(m.page.controlResponses, c.Failures, labels{}.with("classification", "failure"))
}
