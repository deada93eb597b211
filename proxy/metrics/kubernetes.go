package metrics

import "time"

// Kubernetes is how much is known of the cluster from its API.
type Kubernetes struct {
	Synced  bool          // there is a picture
	Age     time.Duration // for how long it may be out of date; 0: it is not
	Objects int
	Changes uint64 // of objects, that changed the picture
}

func (p *page) kubernetes() {
	p.kubernetesAge = p.add("meshctl_kubernetes_age_seconds", "For how long what is known from the Kubernetes API may be out of date: 0 while every kind is watched.")
	p.kubernetesSynced = p.add("meshctl_kubernetes_synced", "1 once there is a whole picture of the cluster; before, every address is only itself.")
	p.kubernetesObjects = p.add("meshctl_kubernetes_objects", "Objects of the Kubernetes API that the picture is made of.")
	p.kubernetesChanges = p.add("meshctl_kubernetes_changes_total", "Objects that changed the picture.")
}

func (m *Metrics) collectKubernetes(send sender) {
	if m.cfg.Kubernetes == nil {
		return
	}
	k := m.cfg.Kubernetes()
	synced := int64(0)
	if k.Synced {
		synced = 1
	}
	send.gauge(m.page.kubernetesAge, int64(k.Age/time.Second), nil)
	send.gauge(m.page.kubernetesSynced, synced, nil)
	send.gauge(m.page.kubernetesObjects, int64(k.Objects), nil)
	send.counter(m.page.kubernetesChanges, k.Changes, nil)
}
