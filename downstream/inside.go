package downstream

import (
	"time"

	"github.com/headrace/headrace/fault"
)

// evidence is what the end of c says of its dependency.
func (c *Call) evidence(failed bool, f fault.Fault) fault.Evidence {
	switch {
	case !failed:
		return fault.SaysUp
	case c.probe && c.d.RefusedInside(f):
		return fault.SaysDown
	}
	return f.Evidence(c.d.cfg.Name)
}

// RefusedInside says of f, the failure of a call to d that had begun, that d itself refused it: something in it called d
// without the call's context, and was taken for a call of its own. While the one around it is the probe nothing else is
// let through, so it can never succeed; it is a probe that failed, or it would be made again at once, for ever (99,785
// times in 45s).
func (d *Dependency) RefusedInside(f fault.Fault) bool {
	return f.Refused() && f.Dependency == d.cfg.Name
}

// longestAsk is for how long a Retry-After may keep the gate shut: whoever asks for a year is asked again before. A
// route has cut it to its MaxHold.
const longestAsk = 15 * time.Minute

// asked is when a Retry-After is over, the zero time for none.
func asked(after time.Duration) time.Time {
	if after <= 0 {
		return time.Time{}
	}
	return time.Now().Add(min(after, longestAsk))
}
