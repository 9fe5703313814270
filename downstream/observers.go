package downstream

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headrace/headrace/record"
)

// observers are the hooks of a dependency. Who reads takes no lock.
type observers struct {
	mu   sync.Mutex
	list atomic.Pointer[[]*observer] // replaced, never changed
}

// observer gives hooks that are added twice two identities.
type observer struct{ hooks *record.Hooks }

func (o *observers) add(h *record.Hooks) (remove func()) {
	if h == nil {
		return func() {}
	}
	mine := &observer{h}
	o.replace(func(list []*observer) []*observer { return append(list, mine) })
	return func() {
		o.replace(func(list []*observer) []*observer {
			return slices.DeleteFunc(list, func(other *observer) bool { return other == mine })
		})
	}
}

func (o *observers) replace(change func([]*observer) []*observer) {
	o.mu.Lock()
	defer o.mu.Unlock()
	list := change(slices.Clone(o.get()))
	o.list.Store(&list)
}

func (o *observers) get() []*observer {
	if list := o.list.Load(); list != nil {
		return *list
	}
	return nil
}

func (o *observers) call(info record.CallInfo) {
	for _, other := range o.get() {
		if f := other.hooks.OnCall; f != nil {
			f(info)
		}
	}
}

func (o *observers) breaker(info record.BreakerInfo) {
	for _, other := range o.get() {
		if f := other.hooks.OnBreaker; f != nil {
			f(info)
		}
	}
}

func (o *observers) retry(info record.RetryInfo) {
	for _, other := range o.get() {
		if f := other.hooks.OnRetry; f != nil {
			f(info)
		}
	}
}

func (o *observers) degraded(info record.DegradedInfo) {
	for _, other := range o.get() {
		if f := other.hooks.OnDegraded; f != nil {
			f(info)
		}
	}
}

func (o *observers) transaction(info record.CallInfo) {
	for _, other := range o.get() {
		if f := other.hooks.OnCallInTransaction; f != nil {
			f(info)
		}
	}
}

func (o *observers) report(r record.Report) {
	for _, other := range o.get() {
		other.hooks.Report(r)
	}
}
