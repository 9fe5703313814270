package main

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/headrace/headrace/test/attack/plot"
)

const (
	soakTime = time.Hour
	keeps    = soakTime / 10 // of the inbox
)

// soaked are the samples of a healthy hour: everything is warm after ten minutes, varies by a tenth, and is many times that
// while a fault lasts. Then change is made to each.
func soaked(seed uint64, change func(minute float64, s *sample)) (ss samples) {
	noise := rand.New(rand.NewPCG(seed, 3))
	for at := sampleEvery; at < soakTime; at += sampleEvery {
		struck := at%cycle >= strikesAt && at%cycle < comesAt
		about := func(level float64) float64 {
			level *= (1 + 0.1*noise.NormFloat64()) * (1 - 0.5*math.Exp(-at.Minutes()/3))
			if struck {
				return 3 * level
			}
			return level
		}
		s := sample{At: at.Seconds(), Rows: about(200_000), P99: about(300), Effects: about(1000), Size: size{
			Goroutines: int(about(300)), Sockets: int(about(40)), Sessions: int(about(40)), MiB: int(about(150)), Live: about(60),
		}}
		change(at.Minutes(), &s)
		ss = append(ss, s)
	}
	return ss
}

func TestSoak_FindsWhatGrowsABitEachMinute(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(minute float64, s *sample){
		"":                           func(float64, *sample) {},
		"resident memory":            func(minute float64, s *sample) { s.Size.MiB += int(minute) },
		"live heap":                  func(minute float64, s *sample) { s.Size.Live += minute },
		"goroutines":                 func(minute float64, s *sample) { s.Size.Goroutines += int(minute) },
		"connections":                func(minute float64, s *sample) { s.Size.Sockets += int(minute) },
		"sessions in Postgres":       func(minute float64, s *sample) { s.Size.Sessions += int(minute) },
		"rows of the inbox":          func(minute float64, s *sample) { s.Rows *= 1 + minute/60 },
		"p99 from written to effect": func(minute float64, s *sample) { s.P99 *= 1 + minute/60 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20) {
				for _, s := range soaked(seed, change).panels(soakTime, keeps) {
					want := plot.Flat
					if s.Name == name {
						want = plot.Rises
					}
					if s.Trend != nil {
						require.Equal(t, want, s.Trend.Verdict, "seed %d, %s: %+v", seed, s.Name, *s.Trend)
					}
				}
			}
		})
	}
}
