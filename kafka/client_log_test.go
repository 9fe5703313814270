package kafka_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/headrace/headrace/kafka"
)

func TestClientLog_BrokerThatIsAwayIsALineAMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := kafka.NewClientLogger(slog.New(slog.NewTextHandler(&out, nil)))
		for range 3000 { // five minutes, ten a second
			log.Log(kgo.LogLevelWarn, "unable to open connection to broker", "addr", "127.0.0.1:1")
			wait(100 * time.Millisecond)
		}
		log.Log(kgo.LogLevelError, "another kind")
		require.Equal(t, 5, strings.Count(out.String(), "unable to open"))
		require.Equal(t, 1, strings.Count(out.String(), "level=ERROR"))
	})
}
