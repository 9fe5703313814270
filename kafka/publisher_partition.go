package kafka

import "github.com/twmb/franz-go/pkg/kgo"

// noWish in a record handed to the client leaves the choice of its partition to the partitioner.
const noWish = -1

// wishes puts a record into the partition that it wants, if the topic has it. Where it has not (yet), the client's own
// manual partitioner would fail the record.
type wishes struct{ base kgo.Partitioner }

func (w wishes) ForTopic(topic string) kgo.TopicPartitioner {
	base := w.base.ForTopic(topic)
	if backup, ok := base.(kgo.TopicBackupPartitioner); ok {
		return backupWishes{topicWishes{base}, backup}
	}
	return topicWishes{base}
}

type topicWishes struct{ base kgo.TopicPartitioner }

// RequiresConsistency keeps the numbers of partitions from shifting while one of them has no leader.
func (w topicWishes) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition != noWish || w.base.RequiresConsistency(r)
}

func (w topicWishes) Partition(r *kgo.Record, n int) int {
	if wish := int(r.Partition); wish >= 0 && wish < n {
		return wish
	}
	return w.base.Partition(r, n)
}

// OnNewBatch is for those base partitioners that stay with a partition until its batch is full.
func (w topicWishes) OnNewBatch() {
	if base, ok := w.base.(kgo.TopicPartitionerOnNewBatch); ok {
		base.OnNewBatch()
	}
}

// backupWishes is for a base that must be told how much is buffered for each partition.
type backupWishes struct {
	topicWishes
	backup kgo.TopicBackupPartitioner
}

func (w backupWishes) PartitionByBackup(r *kgo.Record, n int, buffered kgo.TopicBackupIter) int {
	if wish := int(r.Partition); wish >= 0 && wish < n {
		return wish
	}
	return w.backup.PartitionByBackup(r, n, buffered)
}
