package middleware_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/dlq"
	"github.com/headrace/headrace/downstream"
	"github.com/headrace/headrace/fault"
	"github.com/headrace/headrace/middleware"
)

const (
	again    = middleware.Again
	hold     = middleware.Hold
	park     = middleware.Park
	dead     = middleware.Dead
	giveBack = middleware.GiveBack
)

func of(c fault.Class) fault.Fault { return fault.Fault{Class: c} }

func after(c fault.Class, d time.Duration) fault.Fault { return fault.Fault{Class: c, RetryAfter: d} }

func TestDecide(t *testing.T) {
	t.Parallel()
	const year = 365 * 24 * time.Hour
	minute := time.Minute
	// Attempts 3, back-offs at most 200ms and 400ms, budget 15.6s; the jitter takes half unless a case says otherwise.
	for _, c := range []struct {
		name  string
		state middleware.State
		want  middleware.Decision
	}{
		{
			"PermanentIsDeadAtOnce",
			middleware.State{Fault: of(fault.ClassPermanent)},
			middleware.Decision{Action: dead, Reason: dlq.Permanent, Charged: true},
		},
		{
			"PanicIsPermanentWithItsReason",
			middleware.State{Fault: of(fault.ClassPermanent), Cause: dlq.Panic},
			middleware.Decision{Action: dead, Reason: dlq.Panic, Charged: true},
		},
		{
			"UndecodableNeverRanAndIsNotCharged",
			middleware.State{Fault: of(fault.ClassPermanent), Cause: dlq.Undecodable, NeverRan: true},
			middleware.Decision{Action: dead, Reason: dlq.Undecodable},
		},
		{
			"CauseOfAnotherClassIsNoReason",
			middleware.State{Fault: of(fault.ClassTransient), Cause: dlq.Panic, Random: .5},
			middleware.Decision{Action: again, Wait: 100 * time.Millisecond, Charged: true},
		},

		{
			"TransientIsTriedAgain",
			middleware.State{Fault: of(fault.ClassTransient), Random: .5},
			middleware.Decision{Action: again, Wait: 100 * time.Millisecond, Charged: true},
		},
		{
			"BackOffDoubles",
			middleware.State{Fault: of(fault.ClassTransient), Attempts: 1, Random: .5},
			middleware.Decision{Action: again, Wait: 200 * time.Millisecond, Charged: true},
		},
		{
			"JitterIsFull",
			middleware.State{Fault: of(fault.ClassTransient), Attempts: 1},
			middleware.Decision{Action: again, Charged: true},
		},
		{
			"AKeyThatWasUsedForAnotherRequestIsNotAskedAgain",
			middleware.State{Fault: fault.Fault{Class: fault.ClassAmbiguous, Rule: "http 422"}, Repeatable: true},
			middleware.Decision{Action: dead, Reason: dlq.UnknownOutcome, Charged: true},
		},
		{
			"LastAttemptExhausts",
			middleware.State{Fault: of(fault.ClassTransient), Attempts: 2},
			middleware.Decision{Action: dead, Reason: dlq.Exhausted, Charged: true},
		},
		{
			"SpentBudgetExhausts",
			middleware.State{Fault: of(fault.ClassTransient), Spent: 16 * time.Second},
			middleware.Decision{Action: dead, Reason: dlq.Exhausted, Charged: true},
		},
		{
			"NeverSleepsIntoADeadBudget",
			middleware.State{Fault: of(fault.ClassTransient), Spent: 15500 * time.Millisecond, Random: .9},
			middleware.Decision{Action: dead, Reason: dlq.Exhausted, Charged: true},
		},
		{
			"ExhaustedIsParkedWhereTheRouteParks",
			middleware.State{Fault: of(fault.ClassTransient), Attempts: 2, CanPark: true},
			middleware.Decision{Action: park, Charged: true},
		},

		{
			"ABudgetOfLessThanAnAttemptTakesIsHeld",
			middleware.State{Fault: of(fault.ClassTransient), Spent: 13500 * time.Millisecond, Normal: 2 * time.Second, Random: .5},
			middleware.Decision{Action: hold, Wait: 150 * time.Millisecond, Dependency: middleware.NoBudget, Charged: true},
		},
		{
			"OrParked",
			middleware.State{Fault: of(fault.ClassTransient), Spent: 16 * time.Second, Normal: 2 * time.Second, CanPark: true},
			middleware.Decision{Action: park, Charged: true},
		},
		{
			"AsWhatMayHaveBeenExecutedIs",
			middleware.State{Fault: of(fault.ClassAmbiguous), Repeatable: true, Spent: 16 * time.Second, Normal: time.Second, Random: .5},
			middleware.Decision{Action: hold, Wait: 150 * time.Millisecond, Dependency: middleware.NoBudget, Charged: true},
		},
		{
			"NotWhatMayNotBeRepeated",
			middleware.State{Fault: of(fault.ClassAmbiguous), Spent: 16 * time.Second, Normal: time.Second},
			middleware.Decision{Action: dead, Reason: dlq.UnknownOutcome, Charged: true},
		},
		{
			"NorWhatHasNoAttemptLeft",
			middleware.State{Fault: of(fault.ClassTransient), Attempts: 2, Spent: 16 * time.Second, Normal: time.Second},
			middleware.Decision{Action: dead, Reason: dlq.Exhausted, Charged: true},
		},
		{
			"ABudgetOfJustEnoughIsTriedAgain",
			middleware.State{Fault: of(fault.ClassTransient), Spent: 13500 * time.Millisecond, Normal: 1900 * time.Millisecond, Random: .5},
			middleware.Decision{Action: again, Wait: 100 * time.Millisecond, Charged: true},
		},
		{
			"ARetryAfterThatLeavesLessThanAnAttemptTakesIsFree",
			middleware.State{Fault: fault.Fault{Class: fault.ClassTransient, RetryAfter: 14 * time.Second}, Spent: time.Second, Normal: time.Second},
			middleware.Decision{Action: hold, Wait: 14 * time.Second, Dependency: middleware.RetryAfter},
		},
		{
			"WithoutAnAttemptLeftItIsNot",
			middleware.State{
				Fault: fault.Fault{Class: fault.ClassTransient, RetryAfter: 14 * time.Second}, Attempts: 2, Spent: time.Second, Normal: time.Second,
			},
			middleware.Decision{Action: dead, Reason: dlq.Exhausted, Charged: true},
		},

		{
			"AmbiguousIsNotRepeated",
			middleware.State{Fault: of(fault.ClassAmbiguous)},
			middleware.Decision{Action: dead, Reason: dlq.UnknownOutcome, Charged: true},
		},
		{
			"AmbiguousIsRepeatedWhereThatIsSafe",
			middleware.State{Fault: of(fault.ClassAmbiguous), Repeatable: true, Random: .5},
			middleware.Decision{Action: again, Wait: 100 * time.Millisecond, Charged: true},
		},
		{
			"AmbiguousExhaustedIsUnknown",
			middleware.State{Fault: of(fault.ClassAmbiguous), Repeatable: true, Attempts: 2},
			middleware.Decision{Action: dead, Reason: dlq.UnknownOutcome, Charged: true},
		},
		{
			"AmbiguousExhaustedIsParkedWhereItMayBeRepeated",
			middleware.State{Fault: of(fault.ClassAmbiguous), Repeatable: true, Attempts: 2, CanPark: true},
			middleware.Decision{Action: park, Charged: true},
		},
		{
			"AmbiguousIsNotParkedWhereItMustNotBeRepeated",
			middleware.State{Fault: of(fault.ClassAmbiguous), Attempts: 2, CanPark: true},
			middleware.Decision{Action: dead, Reason: dlq.UnknownOutcome, Charged: true},
		},

		{
			"RetryAfterIsAFloor",
			middleware.State{Fault: after(fault.ClassTransient, 3*time.Second), Random: .5},
			middleware.Decision{Action: again, Wait: 3100 * time.Millisecond, Charged: true},
		},
		{
			"JitterDoesNotPushAFloorOverTheBudget",
			middleware.State{Fault: after(fault.ClassTransient, 15500*time.Millisecond), Random: .9},
			middleware.Decision{Action: again, Wait: 15500 * time.Millisecond, Charged: true},
		},
		{
			"RetryAfterBeyondTheBudgetIsHeldFree",
			middleware.State{Fault: after(fault.ClassTransient, time.Minute)},
			middleware.Decision{Action: hold, Wait: time.Minute, Dependency: middleware.RetryAfter},
		},
		{
			"RetryAfterOnTheLastAttemptIsHeldToo",
			middleware.State{Fault: after(fault.ClassTransient, time.Minute), Attempts: 2},
			middleware.Decision{Action: hold, Wait: time.Minute, Dependency: middleware.RetryAfter},
		},
		{
			"RetryAfterOfAYearIsCutToMaxHold",
			middleware.State{Fault: after(fault.ClassTransient, year)},
			middleware.Decision{Action: hold, Wait: 15 * time.Minute, Dependency: middleware.RetryAfter},
		},
		{
			"RetryAfterOfAYearIsParkedWhereTheRouteParks",
			middleware.State{Fault: after(fault.ClassTransient, year), CanPark: true},
			middleware.Decision{Action: park, Wait: year},
		},
		{
			"NegativeRetryAfterIsNone",
			middleware.State{Fault: after(fault.ClassTransient, -time.Hour), Random: .5},
			middleware.Decision{Action: again, Wait: 100 * time.Millisecond, Charged: true},
		},

		{
			"BusyIsRetriedSoonAndFree",
			middleware.State{Fault: of(fault.ClassBusy), Attempts: 2, Free: 1, Random: .5},
			middleware.Decision{Action: again, Wait: 200 * time.Millisecond},
		},
		{
			"BusyForLongIsHeld",
			middleware.State{Fault: of(fault.ClassBusy), Free: 5},
			middleware.Decision{Action: hold, Wait: 200 * time.Millisecond, Dependency: middleware.BusyElsewhere},
		},
		{
			"BusyForEverIsHeldGently",
			middleware.State{Fault: of(fault.ClassBusy), Free: 5000},
			middleware.Decision{Action: hold, Wait: 5 * time.Second, Dependency: middleware.BusyElsewhere},
		},
		{
			"BusyWithAYearsRetryAfterIsCut",
			middleware.State{Fault: after(fault.ClassBusy, year), Free: 9},
			middleware.Decision{Action: hold, Wait: 15 * time.Minute, Dependency: middleware.BusyElsewhere},
		},

		{
			"UnavailableIsHeldHoweverOftenItFailed",
			middleware.State{Fault: of(fault.ClassUnavailable), Attempts: 2, Spent: time.Hour},
			middleware.Decision{Action: hold, Dependency: fault.Database},
		},
		{
			"UnavailableNamesItsDependency",
			middleware.State{Fault: fault.Fault{Class: fault.ClassUnavailable, Dependency: "payments"}},
			middleware.Decision{Action: hold, Dependency: "payments"},
		},
		{"CancelledIsGivenBack", middleware.State{Fault: of(fault.ClassCancelled)}, middleware.Decision{Action: giveBack}},
		{"NothingDiesWhileTheClaimEnds", middleware.State{Fault: of(fault.ClassPermanent), Ending: true}, middleware.Decision{Action: giveBack}},

		{"NotRunRunsAtOnce", middleware.State{NotRun: true}, middleware.Decision{Action: again}},
		{
			"NotRunAgainAndAgainDoesNotSpin",
			middleware.State{NotRun: true, Free: 4, Random: .5},
			middleware.Decision{Action: again, Wait: 200 * time.Millisecond},
		},
		{
			"ParkIsParked",
			middleware.State{Fault: of(fault.ClassPermanent), ParkFor: &minute, CanPark: true},
			middleware.Decision{Action: park, Wait: minute, Charged: true},
		},
		{
			"ParkInItsLastRoundIsDead",
			middleware.State{Fault: of(fault.ClassTransient), ParkFor: &minute, OutOfRounds: true},
			middleware.Decision{Action: dead, Reason: dlq.Exhausted, Charged: true},
		},
		{
			"ParkWithoutParkingIsHeld",
			middleware.State{Fault: of(fault.ClassPermanent), ParkFor: &minute},
			middleware.Decision{Action: hold, Wait: minute, Dependency: middleware.Postponed},
		},
		{
			"OutageIsHeldAtTheDependencysGate",
			middleware.State{Fault: of(fault.ClassTransient), Charge: downstream.Outage, Called: "payments", Attempts: 2, Spent: time.Hour},
			middleware.Decision{Action: hold, Dependency: "payments"},
		},
		{
			"OutageOfWhichNobodyKnowsTheOutcomeIsHeldWhereRepeatingIsSafe",
			middleware.State{Fault: of(fault.ClassAmbiguous), Charge: downstream.Outage, Called: "payments", Repeatable: true},
			middleware.Decision{Action: hold, Dependency: "payments"},
		},
		{
			"OutageKeepsARetryAfterAsTheEarliestEnd",
			middleware.State{Fault: after(fault.ClassTransient, 3*time.Second), Charge: downstream.Outage, Called: "payments"},
			middleware.Decision{Action: hold, Dependency: "payments", Wait: 3 * time.Second},
		},
		{
			"RetryAfterBeyondTheBudgetPausesTheRouteInAnOutageToo",
			middleware.State{Fault: after(fault.ClassTransient, time.Minute), Charge: downstream.Outage, Called: "payments"},
			middleware.Decision{Action: hold, Dependency: middleware.RetryAfter, Wait: time.Minute},
		},
		{
			"UncorroboratedIsTriedAgainForFree",
			middleware.State{Fault: of(fault.ClassTransient), Charge: downstream.Free, Called: "payments", Attempts: 2, Random: .5},
			middleware.Decision{Action: again, Wait: 150 * time.Millisecond},
		},
		{
			"UncorroboratedForLongIsTriedAgainGently",
			middleware.State{Fault: of(fault.ClassTransient), Charge: downstream.Free, Called: "payments", Free: 500, Random: .5},
			middleware.Decision{Action: again, Wait: 7500 * time.Millisecond},
		},
		{
			"UncorroboratedWaitsForItsRetryAfter",
			middleware.State{Fault: after(fault.ClassTransient, 3*time.Second), Charge: downstream.Free, Called: "payments", Random: .5},
			middleware.Decision{Action: again, Wait: 3150 * time.Millisecond},
		},
		{
			"UncorroboratedRetryAfterOfAYearIsCut",
			middleware.State{Fault: after(fault.ClassTransient, year), Charge: downstream.Free, Called: "payments"},
			middleware.Decision{Action: hold, Dependency: middleware.RetryAfter, Wait: 15 * time.Minute},
		},
		{
			"UnknownOutcomeIsNotRepeatedHoweverFreeItIs",
			middleware.State{Fault: of(fault.ClassAmbiguous), Charge: downstream.Free, Called: "payments"},
			middleware.Decision{Action: dead, Reason: dlq.UnknownOutcome, Charged: true},
		},
		{
			"AnswerIsTheRecordsOwnWhateverTheBreakerSays",
			middleware.State{Fault: of(fault.ClassPermanent), Charge: downstream.Outage, Called: "payments"},
			middleware.Decision{Action: dead, Reason: dlq.Permanent, Charged: true},
		},
		{
			"NothingOfAnOutageSurvivesTheClaim",
			middleware.State{Fault: of(fault.ClassTransient), Charge: downstream.Outage, Called: "payments", Ending: true},
			middleware.Decision{Action: giveBack},
		},
		{
			"UnknownClassIsPermanent",
			middleware.State{Fault: of(fault.Class(99))},
			middleware.Decision{Action: dead, Reason: dlq.Permanent, Charged: true},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, c.want, middleware.Policy{}.WithDefaults().Decide(c.state))
		})
	}
}

// FuzzDecide: whatever the state, a wait is bounded, and nothing but the record's own failure is dead or charged.
func FuzzDecide(f *testing.F) {
	f.Add(uint8(1), int64(time.Hour), 1, int64(0), 3, 0.5, true, uint8(0), int64(0))
	f.Add(uint8(3), int64(-1), 1<<40, int64(1)<<62, 1<<40, 0.99, false, uint8(1), int64(0))
	f.Add(uint8(1), int64(1), 2, int64(1)<<40, 0, 0.99, true, uint8(2), int64(time.Second))
	f.Add(uint8(1), int64(time.Hour), 1, int64(1)<<40, 0, 0.99, false, uint8(0), int64(time.Second))
	f.Fuzz(func(t *testing.T, class uint8, retryAfter int64, attempts int, spent int64, free int, random float64, can bool, charge uint8, normal int64) {
		if random < 0 || random >= 1 || attempts < 0 || free < 0 || spent < 0 || random != random || normal < 0 || normal > int64(5*time.Second) {
			t.Skip("no state that can be")
		}
		p := middleware.Policy{}.WithDefaults()
		d := p.Decide(middleware.State{
			Fault:    fault.Fault{Class: fault.Class(class % 6), RetryAfter: time.Duration(retryAfter)},
			Attempts: attempts, Spent: time.Duration(spent), Free: free, Random: random, CanPark: can, Repeatable: can,
			Charge: downstream.Charge(charge % 3), Called: "payments", Normal: time.Duration(normal),
		})
		require.GreaterOrEqual(t, d.Wait, time.Duration(0))
		switch d.Action {
		case again:
			require.LessOrEqual(t, d.Wait, max(p.Budget, p.MaxHold+time.Second))
		case hold:
			require.LessOrEqual(t, d.Wait, p.MaxHold)
			require.Equal(t, d.Dependency == middleware.NoBudget, d.Charged)
		case dead:
			require.True(t, d.Charged)
			require.True(t, fault.Class(class%6).Charged())
			if c := downstream.Charge(charge % 3); can && c != downstream.Charged {
				require.Equal(t, fault.ClassPermanent, fault.Class(class%6), "an outage kills nobody")
			}
		case park, middleware.Follow, giveBack:
		}
	})
}

func TestBlockedRecordFollowsAndIsNotCharged(t *testing.T) {
	t.Parallel()
	p := middleware.Policy{}.WithDefaults()
	blocked := middleware.State{Fault: fault.Fault{Class: fault.ClassBusy}, Blocked: true, CanPark: true}
	require.Equal(t, middleware.Decision{Action: middleware.Follow}, p.Decide(blocked))
	blocked.Ending = true
	require.Equal(t, giveBack, p.Decide(blocked).Action, "nothing begins at the end of a claim")
}

func TestPolicyDefaults(t *testing.T) {
	t.Parallel()
	p := middleware.Policy{}.WithDefaults()
	require.Equal(t, 600*time.Millisecond, p.Backoffs())
	require.Equal(t, 15600*time.Millisecond, p.Budget)
	p = middleware.Policy{CallTimeout: 10 * time.Second}.WithDefaults()
	require.Equal(t, 45600*time.Millisecond, p.Budget)
	p = middleware.Policy{Attempts: 100, Base: time.Second}.WithDefaults()
	require.Equal(t, 95*10*time.Second+15*time.Second, p.Backoffs(), "1, 2, 4, 8, then the cap")
}
