package fault

import "reflect"

// chain gives the errors from err down to its root, or down to the first that wraps several errors, and its branches.
// It stops before a nil pointer, the well-known slip of a function that returns its own error type: that says nothing,
// and its methods panic.
func chain(err error) (head, branches []error) {
	for !isNil(err) {
		head = append(head, err)
		switch e := err.(type) { //nolint:errorlint // this is the walk that errors.As would make
		case interface{ Unwrap() error }:
			err = e.Unwrap()
		case interface{ Unwrap() []error }:
			return head, e.Unwrap()
		default:
			return head, nil
		}
	}
	return head, nil
}

func isNil(err error) bool {
	v := reflect.ValueOf(err)
	return !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil()
}

// first is errors.As that stays on this side of a Join, whose branches are judged each for itself.
func first[T any](head []error) (T, bool) {
	for _, err := range head {
		if found, ok := err.(T); ok {
			return found, true
		}
	}
	var none T
	return none, false
}

func has[T any](head []error) bool {
	_, ok := first[T](head)
	return ok
}

// is is errors.Is on this side of a Join, for any of targets. The targets are all comparable.
func is(head []error, targets ...error) bool {
	for _, err := range head {
		for _, target := range targets {
			if same(err, target) {
				return true
			}
		}
	}
	return false
}

func same(err, target error) bool {
	if err == target { //nolint:errorlint // one step of errors.Is
		return true
	}
	e, ok := err.(interface{ Is(target error) bool })
	return ok && e.Is(target)
}
