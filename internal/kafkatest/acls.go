package kafkatest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/headrace/headrace/internal/backoff"
)

// ACL is one permission. The resource is taken by its full name.
type ACL struct {
	Operation kmsg.ACLOperation
	Type      kmsg.ACLResourceType
	Name      string
}

// String is the permission for people: "READ TOPIC orders".
func (a ACL) String() string { return fmt.Sprintf("%s %s %s", a.Operation, a.Type, a.Name) }

// TopicACL is a permission on a topic.
func TopicACL(name string, operation kmsg.ACLOperation) ACL {
	return ACL{Operation: operation, Type: kmsg.ACLResourceTypeTopic, Name: name}
}

// GroupACL is a permission on a consumer group.
func GroupACL(name string, operation kmsg.ACLOperation) ACL {
	return ACL{Operation: operation, Type: kmsg.ACLResourceTypeGroup, Name: name}
}

// Allow gives a user permissions, and returns when every broker knows.
func (s *Secure) Allow(t testing.TB, user string, acls ...ACL) {
	t.Helper()
	require.NoError(t, s.SetACLs(t.Context(), user, true, acls...))
}

// Revoke takes permissions away, and returns when every broker knows.
func (s *Secure) Revoke(t testing.TB, user string, acls ...ACL) {
	t.Helper()
	require.NoError(t, s.SetACLs(t.Context(), user, false, acls...))
}

// SetACLs is Allow, or Revoke, outside of a test.
func (s *Secure) SetACLs(ctx context.Context, user string, allow bool, acls ...ACL) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.brokers...))
	if err != nil {
		return err
	}
	defer cl.Close()
	change := removeACLs
	if allow {
		change = createACLs
	}
	if err := change(ctx, cl, "User:"+user, acls); err != nil {
		return err
	}
	for i := range s.brokers { // they learn of it one by one
		for _, a := range acls {
			if err := waitACL(ctx, cl.Broker(i+1), "User:"+user, a, allow); err != nil {
				return err
			}
		}
	}
	return nil
}

func createACLs(ctx context.Context, cl *kgo.Client, principal string, acls []ACL) error {
	req := kmsg.NewPtrCreateACLsRequest()
	for _, a := range acls {
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.ResourcePatternType = a.Type, a.Name, kmsg.ACLResourcePatternTypeLiteral
		c.Principal, c.Host, c.Operation, c.PermissionType = principal, "*", a.Operation, kmsg.ACLPermissionTypeAllow
		req.Creations = append(req.Creations, c)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return firstError(resp.Results, func(r kmsg.CreateACLsResponseResult) int16 { return r.ErrorCode })
}

func removeACLs(ctx context.Context, cl *kgo.Client, principal string, acls []ACL) error {
	req := kmsg.NewPtrDeleteACLsRequest()
	for _, a := range acls {
		f := kmsg.NewDeleteACLsRequestFilter()
		f.ResourceType, f.ResourceName, f.ResourcePatternType = a.Type, &a.Name, kmsg.ACLResourcePatternTypeLiteral
		f.Principal, f.Operation, f.PermissionType = &principal, a.Operation, kmsg.ACLPermissionTypeAllow
		req.Filters = append(req.Filters, f)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return firstError(resp.Results, func(r kmsg.DeleteACLsResponseResult) int16 { return r.ErrorCode })
}

func firstError[R any](results []R, code func(R) int16) error {
	for _, r := range results {
		if err := kerr.ErrorForCode(code(r)); err != nil {
			return err
		}
	}
	return nil
}

func waitACL(ctx context.Context, broker *kgo.Broker, principal string, a ACL, present bool) error {
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourceName, req.ResourcePatternType = a.Type, &a.Name, kmsg.ACLResourcePatternTypeLiteral
	req.Principal, req.Operation, req.PermissionType = &principal, a.Operation, kmsg.ACLPermissionTypeAllow
	for {
		resp, err := req.RequestWith(ctx, broker)
		if err == nil && len(resp.Resources) > 0 == present {
			return nil
		}
		if !backoff.Wait(ctx, pollEvery) {
			return fmt.Errorf("kafkatest: the brokers do not learn of %s: %w", a, context.Cause(ctx))
		}
	}
}
