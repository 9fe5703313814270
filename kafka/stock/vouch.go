package stock

import (
	"context"
	"fmt"
	"time"

	"github.com/IBM/sarama"
	"github.com/google/uuid"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/internal/backoff"
	"github.com/headrace/headrace/record"
)

const (
	// watchTopic is how often a topic's id is compared while nothing of it comes.
	watchTopic = 5 * time.Second
	askTimeout = 2 * time.Second
	// vouchRetry is shorter than errorQuiet, so that the problem stands for as long as it lasts.
	vouchRetry = 5 * time.Second
	anyBroker  = int32(-1)
	// leaderHops is how many brokers are asked for one that says that it leads the partition.
	leaderHops = 4
)

// vouch waits until the record that has come is known to be of the topic that the member reads. It reports false when it
// is of another, or the claim ends.
//
// Sarama fetches by the topic's name: deleted -> created again -> written to -> its position in the old log is one in the
// new log too, and it goes on there without a word. So the leader is asked for the topic's id after the fetch: ids do not
// come back, and a leader knows a new topic before it serves it. What Sarama has buffered by then was fetched before the
// question too, and needs none of its own.
func (o *owned) vouch() bool {
	if o.vouched > 0 {
		o.vouched--
		return !o.m.anew.Load()
	}
	buffered := len(o.from.Messages())
	for n := 0; ; n++ {
		id, err := o.askID()
		switch {
		case err == nil && id == o.m.id():
			o.vouched = buffered
			return true
		case err == nil:
			o.m.madeAnew(id)
			return false
		case ended(o):
			return false
		}
		o.m.s.trouble(place{o.Topic, o.Partition}, problem{kind: record.ReportPartitionError, err: fmt.Errorf("id of the topic: %w", err)})
		if !o.pause(backoff.Exponential(firstRetry/10, vouchRetry, n)) {
			return false
		}
	}
}

// askID ends with the session and with the Subscriber.
func (o *owned) askID() (id uuid.UUID, err error) {
	ctx, cancel := context.WithCancel(o.sess.Context())
	defer cancel()
	defer context.AfterFunc(o.m.s.running, cancel)()
	id, o.leader, err = o.m.s.leadersID(ctx, place{o.Topic, o.Partition}, o.leader)
	return id, err
}

func ended(o *owned) bool {
	select {
	case <-o.Soft():
		return true
	default:
		return false
	}
}

// pause reports false when the claim ends meanwhile.
func (o *owned) pause(d time.Duration) bool {
	return backoff.WaitUnless(context.Background(), d, o.Soft())
}

// leadersID is the id that the partition's leader knows its topic by, and who that is. leader is whom to ask first.
func (s *Subscriber) leadersID(ctx context.Context, at place, leader int32) (uuid.UUID, int32, error) {
	for range leaderHops {
		topic, err := s.askBroker(ctx, leader, at.topic)
		if err != nil {
			if leader == anyBroker || ctx.Err() != nil {
				return uuid.Nil, anyBroker, err
			}
			leader = anyBroker // it has gone, or another knows more
			continue
		}
		leads, found := leaderOf(topic, at.partition)
		switch {
		case !found || leads == leader:
			return uuid.UUID(topic.TopicID), leader, nil
		case leads < 0:
			return uuid.Nil, anyBroker, kerr.LeaderNotAvailable
		}
		leader = leads
	}
	return uuid.Nil, anyBroker, kerr.NotLeaderForPartition
}

func leaderOf(topic kmsg.MetadataResponseTopic, partition int32) (leader int32, found bool) {
	for _, p := range topic.Partitions {
		if p.Partition == partition {
			return p.Leader, true
		}
	}
	return anyBroker, false
}

// askBroker asks one broker what it knows of a topic now; the client's own answers may be older than the question.
func (s *Subscriber) askBroker(ctx context.Context, broker int32, name string) (kmsg.MetadataResponseTopic, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = &name
	req.Topics = append(req.Topics, topic)
	var to kmsg.Requestor = s.lookup
	if broker != anyBroker {
		to = s.lookup.Broker(int(broker))
	}
	answer, err := req.RequestWith(ctx, to)
	if err != nil {
		return kmsg.MetadataResponseTopic{}, err
	}
	if len(answer.Topics) != 1 {
		return kmsg.MetadataResponseTopic{}, kerr.UnknownTopicOrPartition
	}
	return answer.Topics[0], kerr.ErrorForCode(answer.Topics[0].ErrorCode)
}

// madeAnew ends the claims of a topic that is not the one that they are for. Nothing of them is marked any more; the
// member joins again, and check holds it.
func (m *member) madeAnew(is uuid.UUID) {
	m.anew.Store(true)
	err := errAnew(m.id(), is)
	m.mu.Lock()
	defer m.mu.Unlock()
	for partition, o := range m.claims {
		if lost := o.unread(); lost.Count > 0 {
			err = fmt.Errorf("%w; of partition %d offsets %d to %d (%d) were not read", err, partition, lost.First, lost.Last, lost.Count)
		}
		o.Close(record.ErrLost)
	}
	m.s.trouble(place{m.topic, -1}, problem{kind: record.ReportTopicRecreated, err: err})
}

func errAnew(was, is uuid.UUID) error { return fmt.Errorf("topic id was %s and is %s", was, is) }

// rewind makes the group begin at the start of a topic that was made anew. Called when the claims have ended, before the
// last commit.
//
// A record of the old topic runs -> the topic is deleted and created again -> the record is done and its offset is
// committed, by name, for the new one -> a restart would begin there. Nobody has begun a record of the new topic: of a
// session in which it was made anew the partitions are ours, and none is begun that nobody vouches for.
func (m *member) rewind(sess sarama.ConsumerGroupSession) {
	partitions := sess.Claims()[m.topic]
	if len(partitions) == 0 || !m.anew.Load() && !m.findAnew(partitions[0], m.s.cfg.CommitReserve) {
		return
	}
	for _, p := range partitions {
		sess.ResetOffset(m.topic, p, 0, "")
	}
}

// findAnew looks whether the topic is another by now.
func (m *member) findAnew(partition int32, patience time.Duration) bool {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	id, _, err := m.s.leadersID(ctx, place{m.topic, partition}, anyBroker)
	if err != nil || id == m.id() {
		return false
	}
	m.madeAnew(id)
	return true
}

// watchTopics finds topics that were made anew and of which nothing comes: the new log may end where the old one did.
func (s *Subscriber) watchTopics() {
	for s.wait(context.Background(), watchTopic) {
		s.mu.Lock()
		one := make(map[*member]int32)
		for o := range s.claims {
			one[o.m] = o.Partition
		}
		s.mu.Unlock()
		for m, partition := range one {
			m.findAnew(partition, lookupTimeout)
		}
	}
}
