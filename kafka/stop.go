package kafka

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/record"
)

// leaveTimeout bounds each way of leaving the group.
const leaveTimeout = 2 * time.Second

// shutDown runs once. Order matters: claims end and commit while the member is still alive, then it leaves, so that
// the others get its partitions at once, and only then the client is cut off.
func (s *Source) shutDown(ctx context.Context, cause error) {
	s.mu.Lock()
	s.stopping = true
	if s.joining != nil {
		s.joining.Stop()
	}
	client := s.client
	s.mu.Unlock()
	close(s.quit)

	if client != nil {
		s.ending.lock()
		s.endClaims(ctx, s.allClaims(), ending{event: "stopped", cause: record.ErrStopping, grace: s.cfg.DrainGrace})
		s.ending.unlock()
	}
	s.endSubscriptions()
	if client != nil {
		s.leave(client)
	}
	s.cancel()
	s.loops.Wait()
	s.senders.Wait()
	s.err = cause
	close(s.done)
}

func (s *Source) endSubscriptions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.routes.End()
}

// leave takes the member out of its group, whatever the client is doing.
//
// A join may be pending for as long as other members drain, and the client's own leave waits for it. A client that is
// cut off without leaving stays in the group as a ghost, and its partitions idle until the session ends. So it is cut
// off first, which ends the join, and another client leaves in its name.
func (s *Source) leave(client *kgo.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	pending := s.pulse.joining.Load() > 0
	if !pending && client.LeaveGroupContext(ctx) == nil {
		s.cancel()
		client.Close()
		return
	}
	member, _ := client.GroupMetadata()
	s.cancel()
	client.Close()
	if err := s.leaveFor(member); err != nil {
		s.cfg.Logger.Warn("kafka source: could not leave the group; its partitions idle until the session ends",
			"group", s.cfg.Group, "err", err)
	}
}

func (s *Source) leaveFor(member string) error {
	leave := s.leaveClassic
	if s.cfg.Balancer == ServerSide {
		leave = s.leaveServerSide
	} else if s.cfg.InstanceID != "" { // a static member stays
		return nil
	}
	if member == "" {
		return nil
	}
	client, err := kgo.NewClient(s.cfg.Client.Options()...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), leaveTimeout)
	defer cancel()
	if err := leave(ctx, client, member); err != nil && !errors.Is(err, kerr.UnknownMemberID) {
		return err
	}
	return nil
}

func (s *Source) leaveClassic(ctx context.Context, client *kgo.Client, member string) error {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = s.cfg.Group, member
	m := kmsg.NewLeaveGroupRequestMember()
	m.MemberID = member
	req.Members = append(req.Members, m)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

// leaveServerSide is a last heartbeat. That of a static member says that it will be back: its partitions stay with its id,
// and without it nobody else is let in under that id until the session ends, the same process started again neither.
func (s *Source) leaveServerSide(ctx context.Context, client *kgo.Client, member string) error {
	const leaves, willBeBack = -1, -2
	req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	req.Group, req.MemberID, req.MemberEpoch = s.cfg.Group, member, leaves
	if s.cfg.InstanceID != "" {
		req.InstanceID, req.MemberEpoch = &s.cfg.InstanceID, willBeBack
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}
