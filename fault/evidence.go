package fault

// Evidence is what the failure of a call to a dependency says of that dependency.
type Evidence uint8

const (
	// SaysNothing: the call was refused before it began, or ended, or failed by something else.
	SaysNothing Evidence = iota
	// SaysUp: the failure is an answer, so the dependency works.
	SaysUp
	// SaysDown: the dependency is at fault, as far as anybody can tell.
	SaysDown
)

// Evidence says what f, the failure of a call to dependency, says of it: for breakers.
func (f Fault) Evidence(dependency string) Evidence {
	if f.Refused() {
		return SaysNothing
	}
	switch f.Class {
	case ClassPermanent:
		switch f.Rule {
		case "panic", "unreadable", "nil error", "verb skip": // a bug of ours, or decided without asking, for all we know
			return SaysNothing
		}
		return SaysUp
	case ClassBusy:
		return SaysUp
	case ClassTransient, ClassAmbiguous:
		switch f.Rule {
		case keyReused: // it looked at the request well enough to compare it
			return SaysUp
		case "verb park":
			return SaysNothing
		}
		return SaysDown
	case ClassUnavailable:
		return f.about(dependency)
	case ClassCancelled:
		return SaysNothing
	}
	return SaysNothing
}

// about tells a dependency that is down from another one that a call to it needed too. A host is that of the call; a
// name that a handler gave is whose it says.
func (f Fault) about(dependency string) Evidence {
	switch f.Dependency {
	case dependency, Network:
		return SaysDown
	case Database, DeadLetterTopic, Kafka:
		return SaysNothing
	}
	if f.Rule == "verb unavailable" {
		return SaysNothing
	}
	return SaysDown
}
