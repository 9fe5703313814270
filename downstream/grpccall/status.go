package grpccall

import (
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/headrace/headrace/fault"
)

// explain says with err what it means. connected is whether there was a connection to send on: without one surely nothing
// was sent, and with one nobody knows.
func explain(err error, connected bool) error {
	if err == nil || fault.Said(err) {
		return err
	}
	s, is := status.FromError(err)
	if !is {
		return err
	}
	f := fault.Fault{Class: classOf(s), Rule: "grpc " + s.Code().String(), RetryAfter: retryAfter(s)}
	switch {
	case f.Class == fault.ClassUnavailable:
		f.Dependency = fault.Network
	case f.Class == fault.ClassAmbiguous && !connected:
		f.Class, f.Rule = fault.ClassTransient, "not sent"
	}
	return fault.Say(err, f)
}

// tooLarge is what gRPC itself says, before it sends anything; a test pins it.
const tooLarge = "trying to send message larger than max"

func classOf(s *status.Status) fault.Class {
	switch s.Code() {
	case codes.Aborted:
		return fault.ClassTransient
	case codes.ResourceExhausted:
		return exhausted(s)
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Unknown, codes.Internal, codes.DataLoss:
		return fault.ClassAmbiguous
	case codes.Unauthenticated:
		return fault.ClassUnavailable
	}
	return fault.ClassPermanent
}

// exhausted: a server that means "not now" says until when. Without that it may be gRPC, to which the answer of a call that
// was carried out is too long.
func exhausted(s *status.Status) fault.Class {
	switch {
	case strings.HasPrefix(s.Message(), tooLarge):
		return fault.ClassPermanent
	case retryAfter(s) > 0:
		return fault.ClassTransient
	}
	return fault.ClassAmbiguous
}

func retryAfter(s *status.Status) time.Duration {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.RetryInfo); ok {
			return max(info.GetRetryDelay().AsDuration(), 0)
		}
	}
	return 0
}
