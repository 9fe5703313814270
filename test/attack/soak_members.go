package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/headrace/headrace/test/attack/lab"
)

func (k *soak) staying() []*lab.Slot { return k.site.Members.Slots[:staying] }

// died finds members that were to stay and did not: what they had gathered is gone with them.
func (k *soak) died() (found []string) {
	for i, slot := range k.staying() {
		if slot.PID() != k.stay[i] {
			found = append(found, fmt.Sprintf("member %d ended in the middle of the soak; its log is in %s", i, k.site.Dir))
		}
	}
	return found
}

// profiles keeps what is in the members' memory, and where their goroutines are, when a third of the soak is over and at its
// end: what has grown between is found by go tool pprof -base.
func (k *soak) profiles(ctx context.Context) {
	for _, moment := range []struct {
		name string
		at   time.Duration
	}{{"third", k.lasts / 3}, {"end", k.lasts - sampleEvery}} {
		if !k.at(ctx, 0, moment.at) {
			return
		}
		for i, slot := range k.staying() {
			for _, what := range []string{"heap?gc=1", "goroutine?"} {
				file := filepath.Join(k.site.Dir, fmt.Sprintf("member-%d-%s-%s.pprof", i, moment.name, what[:4]))
				if err := fetch(ctx, "http://"+slot.Metrics()+"/debug/pprof/"+what, file); err != nil {
					slog.Error("soak", "err", err)
				}
			}
		}
	}
}

// fetch writes what is at a URL to a file.
func fetch(ctx context.Context, url, file string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	content, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o600)
}
