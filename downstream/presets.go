package downstream

// Critical is a breaker for what must not be waited for in vain: 30 % of at least 10 calls in a minute open it.
func Critical() BreakerConfig { return BreakerConfig{MinRequests: 10, FailureRatio: 0.3} }

// Normal is the default: 50 % of at least 20 calls in a minute.
func Normal() BreakerConfig { return BreakerConfig{MinRequests: 20, FailureRatio: 0.5} }

// Tolerant is a breaker for what fails often and is worth asking all the same: 70 % of at least 30 calls in a minute.
func Tolerant() BreakerConfig { return BreakerConfig{MinRequests: 30, FailureRatio: 0.7} }

// trips says whether n opens a breaker with the defaults filled in.
func (c BreakerConfig) trips(n BreakerCounts) bool {
	if c.Trip != nil {
		return c.Trip(n)
	}
	ended := n.Successes + n.Failures
	return ended >= c.MinRequests && float64(n.Failures) >= c.FailureRatio*float64(ended)
}
