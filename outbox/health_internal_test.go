package outbox

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPulse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var p pulse
		require.EqualError(t, p.silent("somebody has", time.Minute), "somebody has not answered yet")
		require.NoError(t, p.failing("somebody has", time.Minute), "who was not asked has not failed")
		p.note(errors.New("busy"))
		require.EqualError(t, p.silent("somebody has", time.Minute), "somebody has not answered yet: busy")
		require.EqualError(t, p.failing("somebody has", time.Minute), "somebody has not answered yet: busy")

		p.note(nil)
		p.note(errors.New("busy"))
		<-time.After(time.Minute)
		require.NoError(t, p.silent("somebody has", time.Minute))
		require.NoError(t, p.failing("somebody has", time.Minute))
		<-time.After(time.Second)
		require.EqualError(t, p.silent("somebody has", time.Minute), "somebody has not answered for 1m1s: busy")
		require.EqualError(t, p.failing("somebody has", time.Minute), "somebody has not answered for 1m1s: busy")

		p.note(nil)
		<-time.After(time.Hour)
		require.EqualError(t, p.silent("somebody has", time.Minute), "somebody has not answered for 1h0m0s")
		require.NoError(t, p.failing("somebody has", time.Minute))
	})
}

// A forwarder that hangs would keep the others from sending for ever.
func TestForwarder_ThatHangsIsNotLive(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &Forwarder{}
		require.NoError(t, f.Live(), "outside of Run")
		f.round.note(nil)
		f.running.Store(true)
		<-time.After(hungAfter)
		require.NoError(t, f.Live())
		<-time.After(time.Second)
		require.ErrorContains(t, f.Live(), "the forwarder has not answered for 5m1s: it hangs")
		f.stopping.Store(true)
		require.NoError(t, f.Live(), "it is ending")
	})
}
