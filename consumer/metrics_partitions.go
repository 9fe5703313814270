package consumer

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/kafka"
)

// partitions are gauges that are read from the claims when somebody looks: a partition that went to another member
// has no series here any more, and nothing is left behind at its last value.
type partitions struct {
	collected

	stats                                       func() []kafka.PartitionStats
	lag, behind, inFlight, bytes, oldest, pause *prometheus.Desc
}

func newPartitions(stats func() []kafka.PartitionStats) *partitions {
	p := &partitions{stats: stats}
	p.lag = p.partition("partition_lag", "Records between what is settled and the end of the partition.")
	p.behind = p.partition("partition_lag_seconds", "Age, by its own timestamp, of the oldest record that is fetched and not settled.")
	p.inFlight = p.partition("in_flight_records", "Records that are fetched and not settled.")
	p.bytes = p.partition("in_flight_bytes", "Memory of the records that are fetched and not settled.")
	p.oldest = p.partition("oldest_in_flight_age_seconds", "Time since the oldest record that is not settled was fetched.")
	p.pause = p.partition("partition_paused", "1 while nothing of the partition is fetched.")
	return p
}

func (p *partitions) partition(name, help string) *prometheus.Desc {
	return p.desc(name, "gauge", help, "topic", "partition")
}

// Describe implements prometheus.Collector.
func (p *partitions) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.lag, p.behind, p.inFlight, p.bytes, p.oldest, p.pause} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (p *partitions) Collect(ch chan<- prometheus.Metric) {
	for _, s := range p.stats() {
		gauge := func(d *prometheus.Desc, value float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, s.Topic, strconv.Itoa(int(s.Partition)))
		}
		if s.Lag >= 0 {
			gauge(p.lag, float64(s.Lag))
		}
		gauge(p.behind, s.Behind.Seconds())
		gauge(p.inFlight, float64(s.InFlight))
		gauge(p.bytes, float64(s.InFlightBytes))
		gauge(p.oldest, s.OldestAge.Seconds())
		gauge(p.pause, oneIf(s.Paused))
	}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
