package kafka

import "time"

// forgetInterval is between two times that a topic is forgotten: each fails what is under way to it.
const forgetInterval = time.Second

// forget has a client learn a topic anew that was deleted and created again. By itself it never does: it refuses every
// record for the topic that it knew, for as long as it lives. It is called where the client must not be waited for.
func (p *Publisher) forget(by *producer, topic string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || time.Since(p.forgot[topic]) < forgetInterval {
		return
	}
	if p.forgot == nil {
		p.forgot = map[string]time.Time{}
	}
	p.forgot[topic] = time.Now()
	by.users.Add(1)
	go func() {
		defer by.users.Done()
		by.client.PurgeTopicsFromProducing(topic)
	}()
}
