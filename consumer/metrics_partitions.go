package consumer

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headrace/headrace/kafka"
)

// partitions are gauges that are read from the claims when somebody looks: a partition that went to another member
// has no series here any more, and nothing is left behind at its last value.
type partitions struct {
	stats                               func() []kafka.PartitionStats
	lag, inFlight, bytes, oldest, pause *prometheus.Desc
}

func newPartitions(stats func() []kafka.PartitionStats) *partitions {
	return &partitions{
		stats:    stats,
		lag:      partitionDesc("partition_lag", "Records between what is settled and the end of the partition."),
		inFlight: partitionDesc("in_flight_records", "Records that are fetched and not settled."),
		bytes:    partitionDesc("in_flight_bytes", "Memory of the records that are fetched and not settled."),
		oldest:   partitionDesc("oldest_in_flight_age_seconds", "Age of the oldest record that is fetched and not settled."),
		pause:    partitionDesc("partition_paused", "1 while nothing of the partition is fetched."),
	}
}

func partitionDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, []string{"topic", "partition"}, nil)
}

// Describe implements prometheus.Collector.
func (p *partitions) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{p.lag, p.inFlight, p.bytes, p.oldest, p.pause} {
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
