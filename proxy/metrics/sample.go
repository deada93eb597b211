package metrics

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// labels are the label pairs of a series. Those of a handle are built once a
// scrape and shared by its families: sorted leaves no room behind the last
// pair, so that adding to them copies.
type labels []*dto.LabelPair

// with returns l and one more label.
func (l labels) with(name, value string) labels {
	one := &struct {
		pair        dto.LabelPair
		name, value string
	}{name: name, value: value}
	one.pair.Name, one.pair.Value = &one.name, &one.value
	return append(l, &one.pair)
}

// known returns l and one more label, or l if value is empty.
func (l labels) known(name, value string) labels {
	if value == "" {
		return l
	}
	return l.with(name, value)
}

// sorted sorts l by name, as the Prometheus library wants it.
func (l labels) sorted() labels {
	slices.SortFunc(l, func(a, b *dto.LabelPair) int { return strings.Compare(*a.Name, *b.Name) })
	return slices.Clip(l)
}

// sample is one series as a scrape sees it. It is a prometheus.Metric of our own
// because the library's constant metrics build and sort the labels again for
// each family and take a histogram as a map.
type sample struct {
	desc      *prometheus.Desc
	labels    labels
	counter   *dto.Counter
	gauge     *dto.Gauge
	histogram *dto.Histogram
}

var _ prometheus.Metric = (*sample)(nil)

// Desc returns what the sample's family is.
func (s *sample) Desc() *prometheus.Desc { return s.desc }

// Write fills out in.
func (s *sample) Write(out *dto.Metric) error {
	out.Label, out.Counter, out.Gauge, out.Histogram = s.labels, s.counter, s.gauge, s.histogram
	return nil
}

// sender takes the samples of a scrape.
type sender func(prometheus.Metric)

func (send sender) counter(f *family, n uint64, l labels) {
	v := float64(n)
	send(&sample{desc: f.desc, labels: l, counter: &dto.Counter{Value: &v}})
}

func (send sender) gauge(f *family, n int64, l labels) {
	v := float64(n)
	send(&sample{desc: f.desc, labels: l, gauge: &dto.Gauge{Value: &v}})
}

func (send sender) histogram(f *family, h *histogram, l labels) {
	cumulative, total, sum := h.read()
	buckets := make([]dto.Bucket, len(cumulative))
	refs := make([]*dto.Bucket, len(cumulative))
	for i := range buckets {
		buckets[i].CumulativeCount, buckets[i].UpperBound = &cumulative[i], &h.bounds.edges[i]
		refs[i] = &buckets[i]
	}
	out := &dto.Histogram{SampleCount: &total, SampleSum: &sum, Bucket: refs}
	send(&sample{desc: f.desc, labels: l, histogram: out})
}
