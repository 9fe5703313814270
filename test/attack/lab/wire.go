package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
)

// wires are the toxiproxies of a lab.
type wires struct {
	server *toxiproxy.ApiServer
	all    []*Wire
}

func newWires() *wires {
	zerolog.SetGlobalLevel(zerolog.Disabled) // some toxics have loggers of their own
	return &wires{server: toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop())}
}

// lay makes a wire to an address; kafka says that Kafka is spoken there.
func (ws *wires) lay(upstream string, kafka bool) (*Wire, error) {
	tap, err := openTap(upstream, kafka)
	if err != nil {
		return nil, err
	}
	proxy := toxiproxy.NewProxy(ws.server, fmt.Sprintf("wire-%d", len(ws.all)), "127.0.0.1:0", tap.addr())
	if err := proxy.Start(); err != nil {
		tap.close()
		return nil, err
	}
	w := &Wire{proxy: proxy, Upstream: upstream, Tap: tap}
	ws.all = append(ws.all, w)
	return w, nil
}

func (ws *wires) close() error {
	for _, w := range ws.all {
		w.proxy.Stop()
		w.Tap.close()
	}
	return nil
}

// Wire is a proxy in front of one address, with a tap between. A fault at a time may be on it.
type Wire struct {
	Upstream string
	Tap      *Tap
	proxy    *toxiproxy.Proxy
}

// Addr is where it listens.
func (w *Wire) Addr() string { return w.proxy.Listen }

// Directions of a toxic.
const (
	Requests = "upstream"
	Replies  = "downstream"
)

// Toxic is a fault of a network: toxiproxy's type and attributes, in one direction.
type Toxic struct {
	Type       string         `json:"type"`
	Stream     string         `json:"stream"`
	Attributes map[string]any `json:"attributes"`
}

// Poison puts toxics on the wire until mend is called.
func (w *Wire) Poison(toxics ...Toxic) (mend func() error, err error) {
	var names []string
	mend = func() error {
		var errs []error
		for _, name := range names {
			errs = append(errs, w.proxy.Toxics.RemoveToxic(context.Background(), name))
		}
		return errors.Join(errs...)
	}
	for _, t := range toxics {
		text, err := json.Marshal(t)
		if err != nil {
			return nil, errors.Join(err, mend())
		}
		added, err := w.proxy.Toxics.AddToxicJson(bytes.NewReader(text))
		if err != nil {
			return nil, errors.Join(err, mend())
		}
		names = append(names, added.Name)
	}
	return mend, nil
}

// Cut resets what is connected, and refuses what comes until mend is called.
func (w *Wire) Cut() (mend func() error) {
	w.proxy.Stop()
	return w.proxy.Start
}
